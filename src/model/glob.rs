//! OpenSSH's patterns for names, as known_hosts, certificates and configuration files use them.
//!
//! In: a pattern (`*` any run of characters, `?` one) or a list of them, some negated. Out: whether a name is covered.

/// Whether a name is covered by one pattern; letters' case does not matter. Linear: a star that fails is retried one
/// character further.
pub fn covers(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Whether a list covers an object with several names: one of them matches, and no negated pattern matches any.
pub fn list_covers<'a>(patterns: impl IntoIterator<Item = &'a str>, names: &[&str]) -> bool {
    let mut covered = false;
    for pattern in patterns {
        let (negated, pattern) = pattern.strip_prefix('!').map_or((false, pattern), |rest| (true, rest));
        if names.iter().any(|name| covers(pattern, name)) {
            if negated {
                return false;
            }
            covered = true;
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_and_question_marks_match_as_in_openssh() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("cp?", "cp1", true),
            ("cp?", "cp", false),
            ("*.mgmt", "CP1.mgmt", true),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "acb", false),
            ("10.0.*", "10.0.0.11", true),
        ] {
            assert_eq!(covers(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn one_negated_pattern_that_matches_any_of_the_names_excludes_it() {
        assert!(list_covers(["*", "!bastion"], &["cp1", "10.0.0.11"]));
        assert!(!list_covers(["*", "!cp1"], &["cp1", "10.0.0.11"]));
        assert!(!list_covers(["!cp1"], &["cp2"]), "a negation alone covers nothing");
        assert!(list_covers(["10.0.0.*"], &["cp1", "10.0.0.11"]));
    }

    proptest! {
        #[test]
        fn a_name_is_covered_by_itself_and_by_itself_with_any_part_starred(name in "[a-z0-9.-]{0,20}", at in 0_usize..20, len in 0_usize..20) {
            prop_assert!(covers(&name, &name));
            let (from, to) = (at.min(name.len()), (at + len).min(name.len()));
            let starred = format!("{}*{}", &name[..from], &name[to..]);
            prop_assert!(covers(&starred, &name), "{}", starred);
        }
    }
}
