//! The state of the volume of an operation, as far as it was acknowledged.

/// The acknowledged state of one volume.
#[derive(Clone, Default)]
pub(crate) struct Diary {
    pub(crate) is_made: bool,
    pub(crate) is_attached: Option<bool>,
    pub(crate) removal: Removal,
    /// Whether it was acknowledged that the sandbox slept.
    pub(crate) has_slept: bool,
    /// The acknowledged content of its file; `asked` is a requested one that may be there instead.
    pub(crate) held: Option<String>,
    pub(crate) asked: Option<String>,
}

/// How far the removal of a volume was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Removal {
    #[default]
    Not,
    Asked,
    Done,
}

impl Diary {
    /// Whether the file may have this text.
    pub(crate) fn allows(&self, text: Option<&str>) -> bool {
        text == self.held.as_deref() || (self.asked.is_some() && text == self.asked.as_deref())
    }
}
