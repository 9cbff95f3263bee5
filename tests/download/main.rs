//! Bundles from servers that are laid out as the publishers', with faults on the network; and bundles as files.

#![allow(clippy::unwrap_used)]

mod carry;
mod cli;
mod faults;
mod fetch;
mod images;
mod server;
mod shelf;
