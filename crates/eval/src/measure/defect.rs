//! The defects that rules find. Their scores, categories and findings are in [`defects`](super::defects).

/// What a rule can find wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Defect {
    // Errors, by what caused them.
    /// 429, quota, throttling.
    RateLimited,
    /// 401, 403, missing or bad key.
    Unauthenticated,
    /// 5xx, connection lost, overloaded.
    ServiceDown,
    /// 404, no such file or record.
    NotFound,
    /// Memory, context length, disk, budget of steps or tokens.
    Exhausted,
    /// Deadline passed.
    TimedOut,
    /// A module, binary or permission is missing where the tool runs.
    EnvironmentBroken,
    /// There is no such tool, or its schema does not hold.
    ToolMisdefined,
    /// The tool refused its arguments: unexpected keyword, missing or invalid value.
    WrongArguments,
    /// Code that the agent wrote does not parse or run.
    CodeBroken,
    /// An error of no further known cause.
    Errored,
    /// An error that the framework announced as to be retried.
    RetryAnnounced,

    // Calls and their results.
    /// Arguments are not the JSON they should be.
    MalformedArguments,
    /// The model asked for a tool that it was not offered.
    UnknownTool,
    /// A required parameter is missing.
    MissingParameter,
    /// A parameter that the schema does not know.
    UnknownParameter,
    /// A parameter of the wrong type or outside its allowed values.
    IllTypedParameter,
    /// Nothing came back, or "no results".
    EmptyResult,
    /// What came back is cut off.
    TruncatedResult,
    /// What came back has nothing to do with the call.
    IrrelevantResult,

    // Answers that are none.
    /// The model refuses on grounds of policy.
    Refusal,
    /// The model gives up: it does not know or cannot get at it.
    GiveUp,
    /// The answer is avoided on other grounds.
    Evasion,

    // Instructions.
    /// A required tag or marker is missing.
    MissingTag,
    /// The output is not in the required format.
    WrongFormat,
    /// Code fences where there must be none, or none where there must be.
    CodeBlockRule,
    /// Too long or too short.
    LengthLimit,
    /// A forbidden word or phrase.
    ForbiddenText,
    /// A tool that had to be used was not.
    RequiredToolUnused,
    /// More tool calls than allowed in one step.
    TooManyCalls,

    // Reasoning.
    /// A number, date or name that no earlier context supports.
    UnsupportedFact,
    /// A quotation that is not in what was read.
    UnsupportedQuote,
    /// A URL that was never seen.
    UnsupportedUrl,
    /// Claims to have verified, read or searched, with no such call.
    FalseClaim,
    /// The very call that just failed, again.
    RepeatedFailingCall,

    // Limits that the operator set.
    /// Slower, or more tokens, than allowed.
    OverLimit,

    // The agent as a whole.
    /// The same call again and again with the same result.
    RepeatedCall,
    /// Calls that differ by next to nothing.
    NearIdenticalCalls,
    /// A cycle of calls without progress.
    CallLoop,
    /// Errors, and nothing changed after them.
    NoAdaptation,
    /// No call at all covers the task.
    NothingCovered,
    /// A part of the task that no call covers.
    PartNotCovered,
    /// A call that the plan names was never made.
    PlannedCallMissing,
    /// A step of the plan was left out.
    StepSkipped,
    /// Steps were done in another order than planned.
    StepsReordered,
    /// A step was done again for no reason.
    StepRepeated,
    /// Errors broke the plan, and it was not revised.
    NoReplan,
    /// There is no final answer.
    MissingAnswer,
    /// The final answer is empty.
    EmptyAnswer,
    /// A part of the request is unanswered.
    PartUnanswered,
    /// The final answer rests on nothing that the run found.
    AnswerUnsupported,

    // What a model does with its plan, its tools and what they brought.
    /// An answer was given though none of the plan's lookups had been done.
    PlanUnworked,
    /// The tool for the job was there, and something else was done instead.
    ToolLeftUnused,
    /// The model says that it calls a tool or helper, and no call follows.
    AnnouncedCallMissing,
    /// The answer says the opposite of what the tools returned.
    ContradictsResult,
    /// A filter that the request asks for is switched off in the call.
    FilterDropped,
    /// More was read at once than the instructions allow.
    ReadTooMuch,
    /// The step before came back as an error, and this call was shown it.
    ErrorMet,
    /// A string was walked character by character where its items were meant.
    CharactersForItems,
    /// A query that found nothing.
    VainQuery,
    /// One approach after another is given up.
    ApproachGivenUp,
    /// A path is assumed that nothing that was read contains.
    GuessedPath,
    /// Code or a patch is handed over that nothing has run.
    UntriedDelivery,
    /// A patch to lines that nothing which was read contains.
    InventedContext,
}
