//! The metrics of a plan that a judge answers: tool-prompt alignment, executability, adherence to the
//! query (004, tables 31 and 32, paraphrased).
//!
//! In: a query, a plan, its tools, an optional reference plan. Out: one question for each metric, and
//! from its answer a value from 0 to 1 with the issues from which it follows. A judge names the wrong
//! steps, and the value is computed from their number. The question contains the reference plan, if there is
//! one.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::assessment::{PlanAssessment, PlanPartJudgement};
use super::prompt::{DATA, FORM, WORDS, fence, render_plan, render_tools};
use super::rules;
use super::schema::{Fault, Plan, PlanIssue};
use super::tools::Toolbox;
use crate::measure::metric_names::PlanPart;
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Opinion, Prompt, Question, ScoreField};

/// The metrics that judges answer.
pub const JUDGED_PARTS: [PlanPart; 3] =
    [PlanPart::ToolPromptAlignment, PlanPart::StepExecutability, PlanPart::QueryAdherence];

const ALIGNMENT: &str = "\
You check a plan for one thing alone: whether each step's tool can do what its prompt asks. Go by the \
descriptions of the tools. A step is wrong if its tool cannot give what is asked, or cannot give one of \
several things that are asked. Whether the step is needed, well phrased, too long, or wired to the \
right steps is not your concern.";

const EXECUTABILITY: &str = "\
You check a plan for one thing alone: whether each step is one thing that its tool can do at once. \
Take for granted that everything asked is within the tool's reach. Where TOOLS states how many questions or \
items one step of a tool may have, a step with more is wrong, in whatever words it names them, and one with no \
more is right. For other tools a step is wrong if its prompt asks several questions or looks up so many \
different things that it must be divided to be carried out. \
Getting identifiers counts for nothing, simple arithmetic over one result neither, and a step by which \
a language model puts earlier outputs together is always one thing.";

const ADHERENCE: &str = "\
You check a plan for one thing alone: whether it would answer the user's query if every step gave \
exactly what its prompt asks. Tools, format and elegance are not your concern. Placeholders are filled \
when the plan runs; a last step that says itself what the query wants need not have (query). Score:
2: the last step's output answers all of the query.
1: it answers part of it, or with gaps.
0: it has nothing to do with the query.
Name in 'rationale' what is missing, if anything.";

const STEPWISE: &str = "\
Go through the steps in order. In 'wrong' name each step that is wrong, once, with the reason first: \
what in its prompt is at fault. Leave 'wrong' empty if none is.";

const NAMING: &str = "\
Only steps that name a tool are to be judged.";

const BEST: &str = "\
BEST is a plan for the same query that people hold to be the best one. Use it to see what the query \
needs and what the tools can do; a plan may do the same in another way.";

// The form of an answer that names wrong steps.
static STEPS_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let wrong = object_schema(json!({ "reason": { "type": "string" }, "step": { "type": "integer" } }));
    let wrong = json!({ "type": "array", "items": wrong });
    AnswerForm::object("plan_steps", json!({ "rationale": { "type": "string" }, "wrong": wrong }))
});

// The form of an answer about the plan as a whole.
static WHOLE_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let schema = object_schema(json!({
        "rationale": { "type": "string" },
        "score": { "type": "integer", "enum": [0, 1, 2] },
    }));
    let score = Some(ScoreField { key: "score", values: vec![0, 1, 2] });
    Arc::new(AnswerForm { name: "plan_adherence", schema, score })
});

/// Renders the system prompt of a question from its name and the built-in rubric, which the configuration may replace.
pub(crate) type RenderSystem<'a> = &'a dyn Fn(&str, &str) -> String;

/// The question about `part` of a plan; `None` for metrics that rules answer. The key is the
/// metric's name.
pub(crate) fn part_question(
    part: PlanPart,
    query: &str,
    plan: &Plan,
    toolbox: &Toolbox,
    reference: Option<&Plan>,
    system: RenderSystem<'_>,
) -> Option<Question> {
    let stepwise = if plan.is_structured { STEPWISE.to_owned() } else { format!("{STEPWISE} {NAMING}") };
    let (rubric, form) = match part {
        PlanPart::ToolPromptAlignment => (ALIGNMENT, &STEPS_FORM),
        PlanPart::StepExecutability => (EXECUTABILITY, &STEPS_FORM),
        PlanPart::QueryAdherence => (ADHERENCE, &WHOLE_FORM),
        _ => return None,
    };
    let rubric = system(part.metric(), rubric);
    let stepwise = if part == PlanPart::QueryAdherence { String::new() } else { format!("\n\n{stepwise}") };
    let best_explanation = if reference.is_some() { format!("\n\n{BEST}") } else { String::new() };
    let mut user = fence("QUERY", query);
    if part != PlanPart::QueryAdherence {
        user.push_str(&format!("Tools:\n{}", render_tools(toolbox, part == PlanPart::StepExecutability)));
    }
    if let Some(reference) = reference {
        user.push_str(&fence("BEST", &render_plan(reference)));
    }
    user.push_str(&fence("PLAN", &render_plan(plan)));
    let has_structured = plan.is_structured || reference.is_some_and(|r| r.is_structured);
    let has_prose = !plan.is_structured || reference.is_some_and(|r| !r.is_structured);
    let plan_form = match (has_structured, has_prose) {
        (true, true) => format!("{FORM}\n\n{WORDS}"),
        (true, false) => FORM.to_owned(),
        (false, _) => WORDS.to_owned(),
    };
    let system = format!("{rubric}{stepwise}{best_explanation}\n\n{plan_form}\n\n{DATA}");
    Some(Question::new(part.metric(), Prompt::new(system, user), Arc::clone(form)))
}

/// Whether judges are asked about `part` of `plan`: metrics about tools apply to prose only if a
/// step names a tool.
pub(crate) fn is_judged(part: PlanPart, plan: &Plan) -> bool {
    JUDGED_PARTS.contains(&part) && rules::judged_steps(plan, part) > 0
}

/// All questions about a plan, each with its metric's name as key.
pub fn questions(query: &str, assessment: &PlanAssessment, system: RenderSystem<'_>) -> Vec<Question> {
    let PlanAssessment { plan, tools, reference, .. } = assessment;
    let parts = JUDGED_PARTS.into_iter().filter(|part| is_judged(*part, plan));
    parts.filter_map(|part| part_question(part, query, plan, tools, reference.as_ref(), system)).collect()
}

/// Reads an answer that fits its form. Steps that do not exist or are not judged are left out. Adherence is
/// 0, 0.5 or 1; probabilities of tokens have no effect on it.
pub(crate) fn read_judgement(part: PlanPart, plan: &Plan, answer: &Value) -> Option<PlanPartJudgement> {
    let rationale = answer.get("rationale").and_then(Value::as_str).unwrap_or_default().to_owned();
    if part == PlanPart::QueryAdherence {
        let score = answer.get("score").and_then(Value::as_f64)?;
        let value = (score / 2.0).clamp(0.0, 1.0);
        return Some(PlanPartJudgement { value, issues: Vec::new(), rationale });
    }
    let fault = if part == PlanPart::ToolPromptAlignment { Fault::WrongTool } else { Fault::TooComplex };
    let mut issues: Vec<PlanIssue> = Vec::new();
    for wrong in answer.get("wrong")?.as_array()? {
        let number = wrong.get("step").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let is_judged_step = |n: &usize| {
            let step = plan.position(*n).and_then(|position| plan.steps.get(position));
            step.is_some_and(|step| plan.is_structured || step.tool.is_some())
        };
        let Some(number) = number.filter(is_judged_step) else { continue };
        if !issues.iter().any(|i| i.step == Some(number)) {
            let reason = wrong.get("reason").and_then(Value::as_str).unwrap_or_default();
            issues.push(PlanIssue::for_step(number, fault, reason));
        }
    }
    let value = rules::share(rules::judged_steps(plan, part), issues.len());
    Some(PlanPartJudgement { value, issues, rationale })
}

/// The median opinion and its judge; of an even number of opinions the lower median.
pub fn median_judgement(
    part: PlanPart,
    plan: &Plan,
    opinions: &[Opinion],
) -> Option<(PlanPartJudgement, String)> {
    let mut all: Vec<(PlanPartJudgement, &Opinion)> =
        opinions.iter().filter_map(|o| Some((read_judgement(part, plan, &o.value)?, o))).collect();
    all.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let middle = all.len().saturating_sub(1) / 2;
    let (judged, opinion) = all.into_iter().nth(middle)?;
    Some((judged, opinion.judge.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse;
    use crate::measure::plan::parse::tests::LISTING_1;

    fn built_in(_: &str, rubric: &str) -> String {
        rubric.to_owned()
    }

    const QUERY: &str = "Compare QA scores for professionalism and resolution procedures in unresolved calls where sentiment transitioned from negative to positive.";

    #[test]
    fn value_is_the_share_of_steps_not_named_wrong() {
        let plan = parse::parse_plan(LISTING_1);
        let reply_naming = |steps: &[i64]| {
            let list: Vec<Value> = steps.iter().map(|n| json!({ "reason": "why", "step": n })).collect();
            json!({ "rationale": "so", "wrong": list })
        };
        let judged =
            read_judgement(PlanPart::ToolPromptAlignment, &plan, &reply_naming(&[2, 5, 5, 9, -1])).unwrap();
        assert_eq!((judged.value, judged.issues.len()), (4.0 / 6.0, 2));
        assert_eq!(judged.issues[0], PlanIssue::for_step(2, Fault::WrongTool, "why"));
        let judged = read_judgement(PlanPart::StepExecutability, &plan, &reply_naming(&[])).unwrap();
        assert_eq!((judged.value, judged.rationale.as_str()), (1.0, "so"));
        assert_eq!(read_judgement(PlanPart::StepExecutability, &plan, &json!({})), None);
    }

    #[test]
    fn adherence_score_maps_to_0_half_and_1() {
        let plan = parse::parse_plan(LISTING_1);
        for (score, value) in [(0, 0.0), (1, 0.5), (2, 1.0)] {
            let answer = json!({ "rationale": "", "score": score });
            assert_eq!(read_judgement(PlanPart::QueryAdherence, &plan, &answer).unwrap().value, value);
        }
        let opinion =
            Opinion { value: json!({ "rationale": "", "score": 1 }), weighted: Some(1.5), judge: "m".into() };
        let (judged, _) = median_judgement(PlanPart::QueryAdherence, &plan, &[opinion]).unwrap();
        assert_eq!(judged.value, 0.5, "the probabilities of tokens have no effect");
    }

    #[test]
    fn prose_steps_without_a_tool_are_not_judged_for_tools() {
        let prose =
            parse::parse_plan("1. Search with web_search\n2. Think\n3. Open the page with visit_page");
        assert!(
            !is_judged(PlanPart::StepExecutability, &prose) && is_judged(PlanPart::QueryAdherence, &prose)
        );
        let tools = ["web_search", "visit_page"].map(|n| (n.to_owned(), Default::default()));
        let assessment = PlanAssessment::new(prose, Toolbox::new(&tools.into_iter().collect()), None);
        assert_eq!(questions(QUERY, &assessment, &built_in).len(), 3);
        let wrong = json!({ "rationale": "", "wrong": [
            { "reason": "no tool", "step": 2 }, { "reason": "no link yet", "step": 3 } ] });
        let judged = read_judgement(PlanPart::ToolPromptAlignment, &assessment.plan, &wrong).unwrap();
        assert_eq!(
            (judged.value, judged.issues),
            (0.5, vec![PlanIssue::for_step(3, Fault::WrongTool, "no link yet")])
        );
    }

    #[test]
    fn prompts_match_golden_file() {
        let plan = parse::parse_plan(LISTING_1);
        let specs =
            [("RAG", "Reads transcripts."), ("T2S", "Asks the database.")].map(|(name, description)| {
                let spec = super::super::tools::ToolSpec {
                    description: description.to_owned(),
                    max_questions: (name == "RAG").then_some(1),
                    phrases: vec!["duration".to_owned(), "sentiment".to_owned()],
                    max_phrases: (name == "T2S").then_some(3),
                    ..Default::default()
                };
                (name.to_owned(), spec)
            });
        let tools = Toolbox::new(&specs.into_iter().collect());
        let mut text = String::new();
        for (part, reference) in JUDGED_PARTS.into_iter().zip([None, Some(&plan), None]) {
            let q = part_question(part, QUERY, &plan, &tools, reference, &built_in).unwrap();
            text.push_str(&format!(
                "# {}\n## system\n{}\n## user\n{}\n## form\n{:#}\n",
                q.key, q.prompt.system, q.prompt.user, q.form.schema
            ));
        }
        crate::measure::testing::golden("plan_judged", &text);
        assert!(part_question(PlanPart::Format, QUERY, &plan, &tools, None, &built_in).is_none());
    }
}
