//! Skips values without decoding them.

use super::{Result, Wire, tag};

/// The maximum nesting of values. Pointers do not nest, so real images stay far below.
const DEPTH_MAX: u32 = 64;

impl Wire<'_> {
    /// Skips the value at this position.
    pub(crate) fn skip(&mut self) -> Result<()> {
        self.skip_value(0)
    }

    fn skip_value(&mut self, depth: u32) -> Result<()> {
        let tag = self.uint()?;
        self.skip_body(tag, depth)
    }

    pub(crate) fn skip_body(&mut self, tag: u64, depth: u32) -> Result<()> {
        if depth > DEPTH_MAX {
            return self.fault("values are nested too deeply");
        }
        match tag {
            tag::BOOL | tag::INT | tag::UINT | tag::FLOAT_32 | tag::FLOAT_64 => self.uint().map(drop),
            tag::NIL | tag::NO_FIELDS => Ok(()),
            tag::REF => self.reference().map(drop),
            tag::STRING => self.text().map(drop),
            tag::SLICE => {
                self.uint()?;
                self.uint()?;
                self.reference().map(drop)
            }
            tag::ARRAY => {
                let count = self.uint()?;
                if count == 0 {
                    return Ok(());
                }
                let tag = self.uint()?;
                if is_empty(tag) {
                    return Ok(());
                }
                self.at_least(count)?;
                (0..count).try_for_each(|_| self.skip_body(tag, depth + 1))
            }
            tag::MAP => {
                let count = self.uint()?;
                if count == 0 {
                    return Ok(());
                }
                let (key, value) = self.skip_first_pair(depth + 1)?;
                if is_empty(key) && is_empty(value) {
                    return Ok(());
                }
                self.at_least(count - 1)?;
                (1..count).try_for_each(|_| {
                    self.skip_body(key, depth + 1)?;
                    self.skip_body(value, depth + 1)
                })
            }
            tag::STRUCT => {
                self.uint()?;
                self.skip_value(depth + 1)
            }
            tag::FIELDS => {
                let count = self.count()?;
                (0..count).try_for_each(|_| self.skip_value(depth + 1))
            }
            tag::INTERFACE => {
                self.skip_type(0)?;
                self.skip_value(depth + 1)
            }
            tag::COMPLEX_64 | tag::COMPLEX_128 => {
                self.uint()?;
                self.uint().map(drop)
            }
            _ => self.fault("unknown kind of value"),
        }
    }

    fn skip_first_pair(&mut self, depth: u32) -> Result<(u64, u64)> {
        let key = self.uint()?;
        self.skip_body(key, depth)?;
        let value = self.uint()?;
        self.skip_body(value, depth)?;
        Ok((key, value))
    }

    fn at_least(&self, count: u64) -> Result<()> {
        if count > self.left() { self.fault("it ends before the announced length") } else { Ok(()) }
    }

    /// Skips the name of a type, as encoded in pointers and interfaces.
    pub(crate) fn skip_type(&mut self, depth: u32) -> Result<()> {
        if depth > DEPTH_MAX {
            return self.fault("types are nested too deeply");
        }
        match self.uint()? {
            0 => self.uint().map(drop),
            1 | 3 => self.skip_type(depth + 1),
            2 => {
                self.uint()?;
                self.skip_type(depth + 1)
            }
            4 => {
                self.skip_type(depth + 1)?;
                self.skip_type(depth + 1)
            }
            5 => Ok(()),
            _ => self.fault("unknown kind of type"),
        }
    }
}

/// Returns whether values of this kind take no bytes, so that any number of them fits.
pub(crate) fn is_empty(tag: u64) -> bool {
    matches!(tag, tag::NIL | tag::NO_FIELDS)
}
