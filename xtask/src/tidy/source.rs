//! Rust source as a light scan sees it: comments, literals and tests blanked out, so that braces and words count.

/// A file of Rust source without what is not production code. Positions and line breaks are those of the original.
pub(super) struct Source {
    /// Code only: comments, strings, characters and test items are blanks.
    pub(super) code: Vec<char>,
    /// The original text by lines, for markers in comments.
    pub(super) lines: Vec<String>,
}

impl Source {
    /// Scans `text`.
    pub(super) fn scan(text: &str) -> Self {
        let mut code = Masking::of(text);
        blank_tests(&mut code);
        Self { code, lines: text.lines().map(str::to_owned).collect() }
    }

    /// The line, from 1, of a position in the code.
    pub(super) fn line_of(&self, position: usize) -> usize {
        1 + self.code.iter().take(position).filter(|&&c| c == '\n').count()
    }

    /// How many lines from `start` to `end` hold code.
    pub(super) fn code_lines(&self, start: usize, end: usize) -> usize {
        let end = end.min(self.code.len());
        let lines = self.code[start.min(end)..end].split(|&c| c == '\n');
        lines.filter(|line| line.iter().any(|c| !c.is_whitespace())).count()
    }

    /// Where `word` stands as a word of its own.
    pub(super) fn words(&self, word: &str) -> Vec<usize> {
        words_in(&self.code, word)
    }

    /// The position behind the bracket that closes the one at `open`; the end of the file where none does.
    pub(super) fn closing(&self, open: usize) -> usize {
        closing_in(&self.code, open)
    }

    /// The first of `wanted` at or behind `from` outside any nested bracket.
    pub(super) fn find_outside(&self, from: usize, wanted: &[char]) -> Option<usize> {
        let mut at = from;
        while let Some(&c) = self.code.get(at) {
            if wanted.contains(&c) {
                return Some(at);
            }
            match c {
                '(' | '[' | '{' => at = self.closing(at),
                ')' | ']' | '}' => return None,
                _ => at += 1,
            }
        }
        None
    }

    /// Whether the lines of comments and attributes above `line`, or the line itself, carry `// tidy: table`.
    pub(super) fn is_table(&self, line: usize) -> bool {
        let marked = |at: usize| self.lines.get(at).is_some_and(|text| text.contains(MARKER));
        let mut at = line.saturating_sub(1);
        if marked(at) {
            return true;
        }
        while at > 0 && self.lines[at - 1].trim_start().starts_with(['/', '#']) {
            at -= 1;
            if marked(at) {
                return true;
            }
        }
        false
    }

    /// Whether the whole file is a flat table: the marker stands above the first code, with a blank line under it.
    pub(super) fn is_table_file(&self) -> bool {
        let is_head = |line: &str| line.trim().is_empty() || line.starts_with("//");
        let mut head = self.lines.windows(2).take_while(|pair| is_head(&pair[0]));
        head.any(|pair| pair[0].trim() == MARKER && pair[1].trim().is_empty())
    }
}

/// Names of the modules that the file declares for tests alone and keeps in files of their own.
pub(super) fn test_modules(text: &str) -> Vec<String> {
    let code = Masking::of(text);
    let declared = |(_, end): (usize, usize)| {
        let item: String = code[end..item_end(&code, end)].iter().collect();
        let (_, name) = item.strip_suffix(';')?.rsplit_once("mod ")?;
        Some(name.trim().to_owned())
    };
    test_attributes(&code).into_iter().filter_map(declared).collect()
}

/// What exempts a flat table, above the item or the match.
const MARKER: &str = "// tidy: table";

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words_in(code: &[char], word: &str) -> Vec<usize> {
    let word: Vec<char> = word.chars().collect();
    let stands = |at: usize| {
        let before = at.checked_sub(1).is_none_or(|before| !is_word(code[before]));
        before && code.get(at + word.len()).is_none_or(|&after| !is_word(after))
    };
    let starts = code.windows(word.len()).enumerate();
    starts.filter(|(at, window)| *window == word.as_slice() && stands(*at)).map(|(at, _)| at).collect()
}

fn closing_in(code: &[char], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.iter().enumerate().skip(open) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Blanks every item that only tests compile.
fn blank_tests(code: &mut [char]) {
    for (start, end) in test_attributes(code) {
        let end = item_end(code, end);
        code[start..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
    }
}

/// Begin and end of each attribute that keeps an item for tests.
fn test_attributes(code: &[char]) -> Vec<(usize, usize)> {
    let attribute = |at: usize| {
        let start = at.checked_sub(2).filter(|&hash| code[hash..at] == ['#', '['])?;
        let end = closing_in(code, start + 1);
        let text: String = code[at..end].iter().filter(|c| !c.is_whitespace()).collect();
        (text.starts_with("cfg(test)") || text.starts_with("cfg(all(test")).then_some((start, end))
    };
    words_in(code, "cfg").into_iter().filter_map(attribute).collect()
}

/// Where the item ends that begins at or behind `from`: behind its braces, or behind its semicolon.
fn item_end(code: &[char], from: usize) -> usize {
    let mut at = from;
    while let Some(&c) = code.get(at) {
        match c {
            ';' => return at + 1,
            '{' => return closing_in(code, at),
            '(' | '[' => at = closing_in(code, at),
            _ => at += 1,
        }
    }
    code.len()
}

/// Blanks comments and literals, one piece after the other.
struct Masking {
    text: Vec<char>,
    at: usize,
}

impl Masking {
    fn of(text: &str) -> Vec<char> {
        let mut masking = Self { text: text.chars().collect(), at: 0 };
        while masking.at < masking.text.len() {
            masking.piece();
        }
        masking.text
    }

    fn piece(&mut self) {
        match (self.text[self.at], self.text.get(self.at + 1)) {
            ('/', Some('/')) => self.blank_until(|text, at| text[at] == '\n'),
            ('/', Some('*')) => self.block_comment(),
            ('r', Some('"' | '#')) if self.starts_word() => self.raw_string(),
            ('"', _) => self.quoted(),
            ('\'', Some(&next)) => self.character(next),
            _ => self.at += 1,
        }
    }

    /// Whether the character here begins a word; a byte string's `b` may stand before it.
    fn starts_word(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.text[at]);
        before.is_none_or(|c| !is_word(c) || c == 'b' || c == 'c')
    }

    fn blank(&mut self, end: usize) {
        let end = end.min(self.text.len());
        self.text[self.at..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
        self.at = end;
    }

    fn blank_until(&mut self, stop: impl Fn(&[char], usize) -> bool) {
        let end = (self.at..self.text.len()).find(|&at| stop(&self.text, at)).unwrap_or(self.text.len());
        self.blank(end);
    }

    fn block_comment(&mut self) {
        let (mut depth, mut at) = (0_usize, self.at);
        while at + 1 < self.text.len() {
            match (self.text[at], self.text[at + 1]) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    at += 1;
                    continue;
                }
            }
            at += 2;
            if depth == 0 {
                return self.blank(at);
            }
        }
        self.blank(self.text.len());
    }

    fn raw_string(&mut self) {
        let hashes = self.text[self.at + 1..].iter().take_while(|&&c| c == '#').count();
        let open = self.at + 1 + hashes;
        if self.text.get(open) != Some(&'"') {
            self.at += 1;
            return;
        }
        let closes = |at: usize| {
            self.text[at] == '"'
                && self.text[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
        };
        let end =
            (open + 1..self.text.len()).find(|&at| closes(at)).map_or(self.text.len(), |at| at + 1 + hashes);
        self.blank(end);
    }

    fn quoted(&mut self) {
        let mut at = self.at + 1;
        while at < self.text.len() && self.text[at] != '"' {
            at += if self.text[at] == '\\' { 2 } else { 1 };
        }
        self.blank(at + 1);
    }

    /// A character, or the quote of a lifetime, which stays.
    fn character(&mut self, next: char) {
        if next == '\\' {
            let start = self.at + 3;
            let end = (start..self.text.len()).find(|&at| self.text[at] == '\'').unwrap_or(self.text.len());
            return self.blank(end + 1);
        }
        if self.text.get(self.at + 2) == Some(&'\'') {
            return self.blank(self.at + 3);
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::scan(text).code.into_iter().collect()
    }

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        assert_eq!(code("a // {\nb").trim(), "a     \nb");
        assert_eq!(code("a /* { /* } */ */ b").len(), 19);
        assert_eq!(code("a /* { /* } */ */ b").replace(' ', ""), "ab");
        assert_eq!(code(r#"f("}\"{", '{', '\'', b'}')"#).replace(' ', ""), "f(,,,b)");
        assert_eq!(code("r#\"{\"#.x").trim(), ".x");
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn items_for_tests_are_blank() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::scan(text);
        assert_eq!(source.words("fn").len(), 2);
        assert_eq!(source.line_of(source.words("fn")[1]), 6);
        assert_eq!(source.code_lines(0, source.code.len()), 2);
        assert_eq!(code("#[cfg(test)]\nuse x;\nfn a() {}").trim(), "fn a() {}");
        assert_eq!(test_modules("mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[cfg(test)]\nmod c {}\n"), ["b"]);
        assert!(code("#[cfg(feature = \"x\")]\nfn a() {}").contains("fn a"));
    }

    #[test]
    fn a_marker_above_an_item_makes_it_a_table() {
        let source = Source::scan("/// Doc.\n// tidy: table\n#[must_use]\nfn a() {}\n\nfn b() {}\n");
        assert!(source.is_table(4));
        assert!(!source.is_table(6));
        assert!(!source.is_table_file());
        assert!(Source::scan("//! Doc.\n// tidy: table\n\nconst A: u8 = 1;\n").is_table_file());
    }
}
