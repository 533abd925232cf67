//! The languages that rules read.

verdict_otlp::labelled_enum! {
    /// A language that rules read.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
    pub(crate) enum Language {
        English = "en",
        German = "de",
        French = "fr",
        Spanish = "es",
        Portuguese = "pt",
        Italian = "it",
        Chinese = "zh",
        Japanese = "ja",
    }
}

impl Language {
    /// Whether spaces separate words.
    pub(crate) fn is_spaced(self) -> bool {
        !matches!(self, Language::Chinese | Language::Japanese)
    }
}
