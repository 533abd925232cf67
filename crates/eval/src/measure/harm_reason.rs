//! The reasons why a call is harmful.

verdict_otlp::labelled_enum! {
    /// Why a call is harmful, as in `verdict.path.harmful_call.label`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HarmReason {
        /// The symbol is not allowed in the state.
        NotAllowedHere = "not_allowed_here",
        /// The function is known, its arguments match no symbol.
        OtherArguments = "other_arguments",
        /// The function of the call is not in the alphabet.
        OtherFunction = "other_function",
        /// The sum of an argument is above the limit of the run.
        OverLimit = "over_limit",
        /// The call came after its time.
        TooLate = "too_late",
        /// The call came before its time.
        TooSoon = "too_soon",
    }
}
