//! Bundles from servers that are laid out as the publishers', with faults on the network; and bundles as files.

#![allow(clippy::unwrap_used)]

#[path = "download/carry.rs"]
mod carry;
#[path = "download/cli.rs"]
mod cli;
#[path = "download/faults.rs"]
mod faults;
#[path = "download/fetch.rs"]
mod fetch;
#[path = "download/images.rs"]
mod images;
#[path = "download/server.rs"]
mod server;
#[path = "download/shelf.rs"]
mod shelf;
