//! Bundles from servers that lay things out as the publishers do, with all that goes wrong on the way; and bundles as files.

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
