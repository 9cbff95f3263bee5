//! An error with all its causes, in one line.

use std::error::Error;

/// The error and its causes, without repeating one that the text before it quotes.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}
