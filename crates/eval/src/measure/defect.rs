//! The defects that rules find. Their scores, categories and findings are in [`defects`](super::defects).

/// Declares the enum, the list of its variants, and their names.
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name of the variant, which is the name of the rule in tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$variant => stringify!($variant)),+
                }
            }
        }
    };
}

named_enum! {
/// A kind of fault that a rule can find.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Defect {
    // Errors, by cause.
    /// A rate limit was reached: HTTP 429, a quota, throttling.
    RateLimited,
    /// Credentials are missing or refused: HTTP 401 or 403, an invalid key.
    Unauthenticated,
    /// A service failed: HTTP 5xx, a lost connection, an overload.
    ServiceDown,
    /// A resource does not exist: HTTP 404, no such file or record.
    NotFound,
    /// A resource is used up: memory, context length, disk, a budget of steps or tokens.
    Exhausted,
    /// A deadline was exceeded.
    TimedOut,
    /// A module, binary or permission is missing where the tool runs.
    EnvironmentBroken,
    /// The called tool does not exist, or its schema is invalid.
    ToolMisdefined,
    /// The tool refused its arguments: an unexpected keyword, a missing or invalid value.
    WrongArguments,
    /// Code that the agent wrote does not parse, or raises an error of its own.
    InvalidCode,
    /// Code that the agent wrote uses a name that nothing before it defined.
    UndefinedName,
    /// An error of unknown cause.
    Errored,
    /// An error after which the framework announced a retry.
    RetryAnnounced,

    // Calls and their results.
    /// Arguments are not valid JSON.
    MalformedArguments,
    /// The model called a tool that it was not offered.
    UnknownTool,
    /// A required parameter is missing.
    MissingParameter,
    /// A parameter that is not in the schema.
    UnknownParameter,
    /// A parameter of the wrong type or outside its allowed values.
    IllTypedParameter,
    /// A lookup found nothing; reported as a note.
    EmptyResult,
    /// A lookup found nothing for an identifier that the model made up.
    InventedIdentifier,
    /// The result is cut off.
    TruncatedResult,

    // Avoided answers.
    /// The model refuses for reasons of policy.
    Refusal,
    /// The model states that it does not know or cannot find the answer.
    GiveUp,
    /// The answer is avoided for other reasons.
    Evasion,

    // Instructions.
    /// A required tag or marker is missing.
    MissingTag,
    /// The output is not in the required format.
    WrongFormat,
    /// Forbidden code fences, or missing required ones.
    CodeBlockRule,
    /// The output is longer or shorter than required.
    LengthLimit,
    /// A forbidden word or phrase.
    ForbiddenText,
    /// A required tool was not used.
    RequiredToolUnused,
    /// A step has more tool calls than allowed.
    TooManyCalls,

    // Reasoning.
    /// A number, date or name that no earlier context supports.
    UnsupportedFact,
    /// A quotation that is in no earlier text.
    UnsupportedQuote,
    /// A URL that is in no earlier text.
    UnsupportedUrl,
    /// The output claims to have verified, read or searched, without such a call.
    FalseClaim,
    /// A failed call is repeated unchanged.
    RepeatedFailingCall,

    // Configured limits.
    /// The duration or the tokens exceed the limit.
    OverLimit,

    // The agent as a whole.
    /// The same call is repeated with the same result.
    RepeatedCall,
    /// Failing calls differ only slightly.
    NearIdenticalCalls,
    /// A cycle of calls without progress.
    CallLoop,
    /// An error is repeated without adaptation.
    NoAdaptation,
    /// No call covers any part of the task.
    NothingCovered,
    /// A part of the task that no call covers.
    PartNotCovered,
    /// A tool that the plan names was not called.
    PlannedCallMissing,
    /// A step of the plan, or one that the instructions put before an action, was skipped.
    StepSkipped,
    /// Steps were carried out in another order than planned.
    StepsReordered,
    /// A step was repeated without need.
    StepRepeated,
    /// Steps of the plan failed, and the plan was not revised.
    NoReplan,
    /// There is no final answer.
    MissingAnswer,
    /// The final answer is empty.
    EmptyAnswer,
    /// The final answer is cut off at a limit of length.
    CutAnswer,
    /// A part of the request is unanswered.
    PartUnanswered,
    /// The final answer is not supported by any result of the run.
    AnswerUnsupported,

    // A model's use of its plan, its tools and their results.
    /// An answer was given although none of the plan's lookups had been carried out.
    LookupsSkipped,
    /// The user confirmed an action that a tool does, and it was never carried out.
    ConfirmedActionMissing,
    /// The model announces a call, and no call follows.
    AnnouncedCallMissing,
    /// The answer contradicts the results of the tools.
    ContradictsResult,
    /// An argument of a call contradicts the request.
    ContradictsRequest,
    /// An amount of a call exceeds a limit of the instructions.
    ExceedsLimit,
    /// One call read more than the instructions allow.
    ReadTooMuch,
    /// A patch changes lines that are in no earlier text.
    InventedContext,
    /// The answer contains values that the model itself calls simulated, hypothetical or assumed.
    InventedData,
    /// The answer states a guess of the run as a fact.
    GuessStated,
    /// The arguments of an executed call contain a placeholder.
    PlaceholderExecuted,
}
}

impl Defect {
    /// Whether the defect is an error that was raised or returned, whose message is the evidence.
    pub(crate) fn is_error(self) -> bool {
        use Defect::*;
        matches!(
            self,
            RateLimited
                | Unauthenticated
                | ServiceDown
                | NotFound
                | Exhausted
                | TimedOut
                | EnvironmentBroken
                | ToolMisdefined
                | WrongArguments
                | InvalidCode
                | UndefinedName
                | Errored
                | RetryAnnounced
        )
    }
}
