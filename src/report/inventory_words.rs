//! Splits the text of an inventory error for a verdict.
//!
//! In: the error's text, often several lines. Out: a headline, details, and what to do.

/// The parts of an inventory error: `what`, perhaps details, perhaps `  do: ...`; or a report of violated rules, each
/// with its line of the inventory.
pub(super) struct InventoryWords {
    /// The first sentence.
    pub(super) headline: String,
    /// The details.
    pub(super) more: Option<String>,
    /// The hint in its last line.
    pub(super) to_do: Option<String>,
}

impl InventoryWords {
    /// Splits the text.
    pub(super) fn of(text: String) -> Self {
        let (what, to_do) = match text.rsplit_once("\n  do: ") {
            Some((what, to_do)) => (what, Some(to_do.to_owned())),
            None if text.trim_end().contains('\n') => {
                let headline = "the inventory breaks the rules below".to_owned();
                return Self { headline, more: Some(text.trim_end().to_owned()), to_do: None };
            }
            None => (text.as_str(), None),
        };
        let (headline, more) =
            what.split_once('\n').map_or((what, None), |(first, more)| (first, Some(more.to_owned())));
        Self { headline: headline.trim_end_matches(':').to_owned(), more, to_do }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, Option<String>, Option<String>) {
        let stated = InventoryWords::of(text.to_owned());
        (stated.headline, stated.more, stated.to_do)
    }

    #[test]
    fn the_remedy_is_no_part_of_the_headline() {
        assert_eq!(parts("there is none\n  do: make one"), ("there is none".into(), None, Some("make one".into())));
        let long = "Vagrant cannot tell:\nline one\nline two\n  do: look";
        assert_eq!(parts(long), ("Vagrant cannot tell".into(), Some("line one\nline two".into()), Some("look".into())));
        assert_eq!(parts("all in one line"), ("all in one line".into(), None, None));
    }

    #[test]
    fn a_report_of_broken_rules_keeps_its_lines() {
        let (headline, more, to_do) = parts("a.yaml:1:1: error: x\n  |\n1 | schema\n\n1 error\n");
        assert_eq!((headline.as_str(), to_do), ("the inventory breaks the rules below", None));
        assert_eq!(more.as_deref(), Some("a.yaml:1:1: error: x\n  |\n1 | schema\n\n1 error"));
    }
}
