//! SPDX licence expressions, as far as packages use them.

/// Whether the expression can be satisfied with the `allowed` licences alone; what cannot be read is not allowed.
pub(super) fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Before SPDX expressions a slash meant a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    parser.choice() == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl Parser<'_> {
    fn choice(&mut self) -> Option<bool> {
        let mut any = self.sum()?;
        while self.takes("OR") {
            any |= self.sum()?;
        }
        Some(any)
    }

    fn sum(&mut self) -> Option<bool> {
        let mut all = self.licence()?;
        while self.takes("AND") {
            all &= self.licence()?;
        }
        Some(all)
    }

    fn licence(&mut self) -> Option<bool> {
        let (&word, rest) = self.words.split_first()?;
        self.words = rest;
        if word == "(" {
            let inner = self.choice()?;
            return self.takes(")").then_some(inner);
        }
        // An exception only widens what the licence grants.
        if self.takes("WITH") {
            self.words = self.words.split_first()?.1;
        }
        Some(self.allowed.contains(&word))
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(found)..];
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "MIT OR GPL-3.0 AND Zlib",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT Apache-2.0", "MIT OR"] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
