//! The reasons why a call is harmful.

verdict_otlp::labelled_enum! {
    /// The reason why a call is harmful. Labels are the values of `verdict.path.harmful_call.label`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum HarmReason {
        /// The symbol of the call is not allowed in the state of the run.
        NotAllowedHere = "not_allowed_here",
        /// The function of the call is in the alphabet, but its arguments match no symbol.
        OtherArguments = "other_arguments",
        /// The function of the call is not in the alphabet.
        OtherFunction = "other_function",
        /// The sum of an argument over the calls of the run exceeds a limit.
        OverLimit = "over_limit",
        /// The call was made after the allowed time.
        TooLate = "too_late",
        /// The call was made before the allowed time.
        TooSoon = "too_soon",
    }
}
