//! Quotes and variables in Dockerfiles, outside of commands.

use std::collections::BTreeMap;

/// The values of `$NAME`.
pub(crate) type Values = BTreeMap<String, String>;

/// Splits `text` at spaces outside of quotes, and expands variables.
pub(crate) fn split(text: &str, values: &Values) -> Result<Vec<String>, String> {
    Reader { left: text, values }.words(true)
}

/// Removes quotes from `text` and expands variables.
pub(crate) fn expand(text: &str, values: &Values) -> Result<String, String> {
    Ok(Reader { left: text, values }.words(false)?.pop().unwrap_or_default())
}

struct Reader<'a> {
    left: &'a str,
    values: &'a Values,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let mut chars = self.left.chars();
        let next = chars.next();
        self.left = chars.as_str();
        next
    }

    fn words(mut self, splits: bool) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        let mut word = None::<String>;
        while let Some(next) = self.next() {
            if splits && next.is_whitespace() {
                words.extend(word.take());
                continue;
            }
            let word = word.get_or_insert_default();
            match next {
                '\\' => word.push(self.next().unwrap_or('\\')),
                '\'' => self.single(word)?,
                '"' => self.double(word)?,
                '$' => self.variable(word)?,
                other => word.push(other),
            }
        }
        words.extend(word);
        Ok(words)
    }

    fn single(&mut self, word: &mut String) -> Result<(), String> {
        let Some((inside, left)) = self.left.split_once('\'') else { return Err("missing closing '".to_owned()) };
        word.push_str(inside);
        self.left = left;
        Ok(())
    }

    fn double(&mut self, word: &mut String) -> Result<(), String> {
        loop {
            match self.next() {
                None => return Err("missing closing \"".to_owned()),
                Some('"') => return Ok(()),
                Some('$') => self.variable(word)?,
                Some('\\') => match self.next() {
                    Some(escaped @ ('"' | '\\' | '$')) => word.push(escaped),
                    Some(other) => word.extend(['\\', other]),
                    None => return Err("missing closing \"".to_owned()),
                },
                Some(other) => word.push(other),
            }
        }
    }

    /// Expands `$NAME`, `${NAME}`, `${NAME:-word}` or `${NAME:+word}`.
    fn variable(&mut self, word: &mut String) -> Result<(), String> {
        let is_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        if !self.left.starts_with('{') {
            let end = self.left.find(|byte| !is_name(byte)).unwrap_or(self.left.len());
            let (name, left) = self.left.split_at(end);
            self.left = left;
            match name {
                "" => word.push('$'),
                name => word.push_str(self.values.get(name).map_or("", String::as_str)),
            }
            return Ok(());
        }
        let Some((inside, left)) = self.left[1..].split_once('}') else { return Err("missing } after ${".to_owned()) };
        self.left = left;
        let end = inside.find(|byte| !is_name(byte)).unwrap_or(inside.len());
        let (name, rest) = inside.split_at(end);
        let value = self.values.get(name).map(String::as_str).filter(|value| !value.is_empty());
        if name.is_empty() || rest.contains('$') {
            return Err(format!("${{{inside}}} is not supported: write ${{NAME}}"));
        }
        match rest.split_at_checked(2) {
            None if rest.is_empty() => word.push_str(value.unwrap_or_default()),
            Some((":-", other)) => word.push_str(value.unwrap_or(other)),
            Some((":+", other)) => word.push_str(value.map_or("", |_| other)),
            _ => {
                return Err(format!(
                    "${{{inside}}} is not supported: write ${{NAME}}, ${{NAME:-word}} or ${{NAME:+word}}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Values, expand, split};

    fn values() -> Values {
        [("A", "1"), ("LONG_2", "two words"), ("EMPTY", "")].map(|(name, value)| (name.into(), value.into())).into()
    }

    #[test]
    fn words_are_split_outside_of_quotes_and_values_are_not() {
        for (text, words) in [
            ("a  b\tc", vec!["a", "b", "c"]),
            ("X=$LONG_2 Y='$A' Z=\"$A $A\"", vec!["X=two words", "Y=$A", "Z=1 1"]),
            ("a\\ b", vec!["a b"]),
            ("'' \"\"", vec!["", ""]),
            ("${A}x ${NO}y ${NO:-d} ${EMPTY:-e} ${A:+p} ${NO:+p}", vec!["1x", "y", "d", "e", "p", ""]),
            ("\\$A $ $$", vec!["$A", "$", "$$"]),
            ("\"a \\\" \\n\"", vec!["a \" \\n"]),
        ] {
            assert_eq!(split(text, &values()).unwrap(), words, "{text}");
        }
        assert_eq!(expand(" a $A 'b  c'", &values()).unwrap(), " a 1 b  c");
    }

    #[test]
    fn what_is_not_closed_or_not_understood_is_refused() {
        for text in ["'a", "\"a", "\"a\\", "${A", "${}", "${A:?no}", "${A%x}", "${A:-$B}"] {
            assert!(split(text, &values()).is_err(), "{text}");
        }
    }
}
