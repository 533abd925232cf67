//! The metrics of a plan that a judge answers: tool-prompt alignment, executability, adherence to the
//! query (004, tables 31 and 32, in our words).
//!
//! In: a query, a plan, its tools, a reference plan where there is one. Out: one question for each
//! metric, and from its answer a value from 0 to 1 with the issues that led there. A judge names the
//! steps that are wrong; counting is ours. With a reference the judge sees it, and whoever reads the
//! result is told which it was.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::examine::Examined;
use super::part::Part;
use super::prompt::{DATA, FORM, WORDS, fence, tools, written};
use super::rules;
use super::schema::{Fault, Issue, Plan};
use super::tools::Toolbox;
use crate::measure::{Form, Opinion, Prompt, Question, ScoreField};

/// The metrics that are asked.
pub const ASKED: [Part; 3] = [Part::ToolPromptAlignment, Part::StepExecutability, Part::QueryAdherence];

const ALIGNMENT: &str = "\
You check a plan for one thing alone: whether each step's tool can do what its prompt asks. Go by the \
descriptions of the tools. A step is wrong if its tool cannot give what is asked, or cannot give one of \
several things that are asked. Whether the step is needed, well phrased, too long, or wired to the \
right steps is not your concern.";

const EXECUTABILITY: &str = "\
You check a plan for one thing alone: whether each step is one thing that its tool can do at once. \
Take for granted that everything asked is within the tool's reach. A step is wrong if its prompt asks \
several questions or looks up so many different things that it must be divided to be carried out. \
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

const BESIDE: &str = "\
BEST is a plan for the same query that people hold to be the best one. Use it to see what the query \
needs and what the tools can do; a plan may do the same in another way.";

static STEPS: LazyLock<Arc<Form>> = LazyLock::new(|| {
    let wrong = json!({
        "type": "object",
        "properties": { "reason": { "type": "string" }, "step": { "type": "integer" } },
        "required": ["reason", "step"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": { "rationale": { "type": "string" }, "wrong": { "type": "array", "items": wrong } },
        "required": ["rationale", "wrong"],
        "additionalProperties": false,
    });
    Arc::new(Form { name: "plan_steps", schema, score: None })
});

static WHOLE: LazyLock<Arc<Form>> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": {
            "rationale": { "type": "string" },
            "score": { "type": "integer", "enum": [0, 1, 2] },
        },
        "required": ["rationale", "score"],
        "additionalProperties": false,
    });
    let score = Some(ScoreField { key: "score", values: vec![0, 1, 2] });
    Arc::new(Form { name: "plan_adherence", schema, score })
});

/// What is asked of a plan for `part`; `None` for metrics that rules answer. The key is the
/// metric's name.
pub fn question(
    part: Part,
    query: &str,
    plan: &Plan,
    known: &Toolbox,
    reference: Option<&Plan>,
) -> Option<Question> {
    let stepwise = if plan.structured { STEPWISE.to_owned() } else { format!("{STEPWISE} {NAMING}") };
    let (rubric, form) = match part {
        Part::ToolPromptAlignment => (format!("{ALIGNMENT}\n\n{stepwise}"), &STEPS),
        Part::StepExecutability => (format!("{EXECUTABILITY}\n\n{stepwise}"), &STEPS),
        Part::QueryAdherence => (ADHERENCE.to_owned(), &WHOLE),
        _ => return None,
    };
    let beside = if reference.is_some() { format!("\n\n{BESIDE}") } else { String::new() };
    let mut user = fence("QUERY", query);
    if part != Part::QueryAdherence {
        user.push_str(&format!("Tools:\n{}", tools(known)));
    }
    if let Some(reference) = reference {
        user.push_str(&fence("BEST", &written(reference)));
    }
    user.push_str(&fence("PLAN", &written(plan)));
    let calls = plan.structured || reference.is_some_and(|r| r.structured);
    let words = !plan.structured || reference.is_some_and(|r| !r.structured);
    let form_of = match (calls, words) {
        (true, true) => format!("{FORM}\n\n{WORDS}"),
        (true, false) => FORM.to_owned(),
        (false, _) => WORDS.to_owned(),
    };
    let system = format!("{rubric}{beside}\n\n{form_of}\n\n{DATA}");
    let prompt = Prompt::new(system, user);
    Some(Question { key: part.metric().to_owned(), prompt, form: Arc::clone(form), judges: Vec::new() })
}

/// Whether `part` is asked of `plan`: of one in words what is about tools only where a step names
/// one.
pub fn applies(part: Part, plan: &Plan) -> bool {
    ASKED.contains(&part) && rules::judged_steps(plan, part) > 0
}

/// Everything that is asked of a plan, each with its metric's name as key.
pub fn questions(query: &str, examined: &Examined) -> Vec<Question> {
    let Examined { plan, tools, reference, .. } = examined;
    let parts = ASKED.into_iter().filter(|part| applies(*part, plan));
    parts.filter_map(|part| question(part, query, plan, tools, reference.as_ref())).collect()
}

/// What an answer to [`question`] says.
#[derive(Clone, PartialEq, Debug)]
pub struct Judged {
    /// From 0 to 1.
    pub value: f64,
    /// The steps named, with the judge's reasons.
    pub issues: Vec<Issue>,
    /// The judge's words on the whole.
    pub rationale: String,
}

/// Reads an answer that fits its form; `weighted` is the judge's score by the probabilities of its
/// tokens, where known. Steps that there are not, or that were not to be judged, are left out.
pub fn read(part: Part, plan: &Plan, answer: &Value, weighted: Option<f64>) -> Option<Judged> {
    let rationale = answer.get("rationale").and_then(Value::as_str).unwrap_or_default().to_owned();
    if part == Part::QueryAdherence {
        let score = weighted.or_else(|| answer.get("score").and_then(Value::as_f64))?;
        return Some(Judged { value: (score / 2.0).clamp(0.0, 1.0), issues: Vec::new(), rationale });
    }
    let fault = if part == Part::ToolPromptAlignment { Fault::WrongTool } else { Fault::TooComplex };
    let mut issues: Vec<Issue> = Vec::new();
    for wrong in answer.get("wrong")?.as_array()? {
        let number = wrong.get("step").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let judged = |n: &usize| {
            let step = plan.position(*n).and_then(|at| plan.steps.get(at));
            step.is_some_and(|step| plan.structured || step.tool.is_some())
        };
        let Some(number) = number.filter(judged) else { continue };
        if !issues.iter().any(|i| i.step == Some(number)) {
            let reason = wrong.get("reason").and_then(Value::as_str).unwrap_or_default();
            issues.push(Issue::of(number, fault, reason));
        }
    }
    let value = rules::share(rules::judged_steps(plan, part), issues.len());
    Some(Judged { value, issues, rationale })
}

/// The opinion in the middle, and who said so; of an even number the lower one.
pub fn middle(part: Part, plan: &Plan, opinions: &[Opinion]) -> Option<(Judged, String)> {
    let mut all: Vec<(Judged, &Opinion)> =
        opinions.iter().filter_map(|o| Some((read(part, plan, &o.value, o.weighted)?, o))).collect();
    all.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let middle = all.len().saturating_sub(1) / 2;
    let (judged, opinion) = all.into_iter().nth(middle)?;
    Some((judged, opinion.judge.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::read as reader;
    use crate::measure::plan::read::tests::LISTING_1;

    const QUERY: &str = "Compare QA scores for professionalism and resolution procedures in unresolved calls where sentiment transitioned from negative to positive.";

    #[test]
    fn a_judge_names_steps_and_counting_is_ours() {
        let plan = reader::read(LISTING_1);
        let wrong = |steps: &[i64]| {
            let list: Vec<Value> = steps.iter().map(|n| json!({ "reason": "why", "step": n })).collect();
            json!({ "rationale": "so", "wrong": list })
        };
        let judged = read(Part::ToolPromptAlignment, &plan, &wrong(&[2, 5, 5, 9, -1]), None).unwrap();
        assert_eq!((judged.value, judged.issues.len()), (4.0 / 6.0, 2));
        assert_eq!(judged.issues[0], Issue::of(2, Fault::WrongTool, "why"));
        let judged = read(Part::StepExecutability, &plan, &wrong(&[]), None).unwrap();
        assert_eq!((judged.value, judged.rationale.as_str()), (1.0, "so"));
        assert_eq!(read(Part::StepExecutability, &plan, &json!({}), None), None);
    }

    #[test]
    fn adherence_is_nothing_a_half_or_all() {
        let plan = reader::read(LISTING_1);
        for (score, value) in [(0, 0.0), (1, 0.5), (2, 1.0)] {
            let answer = json!({ "rationale": "", "score": score });
            assert_eq!(read(Part::QueryAdherence, &plan, &answer, None).unwrap().value, value);
        }
        let answer = json!({ "rationale": "", "score": 1 });
        assert_eq!(read(Part::QueryAdherence, &plan, &answer, Some(1.5)).unwrap().value, 0.75);
    }

    #[test]
    fn of_words_only_steps_that_name_a_tool_are_judged_for_it() {
        let words = reader::read("1. Search with web_search\n2. Think\n3. Open the page with visit_page");
        assert!(!applies(Part::StepExecutability, &words) && applies(Part::QueryAdherence, &words));
        let tools = ["web_search", "visit_page"].map(|n| (n.to_owned(), Default::default()));
        let examined = Examined::new(words, Toolbox::new(&tools.into_iter().collect()), None);
        assert_eq!(questions(QUERY, &examined).len(), 3);
        let wrong = json!({ "rationale": "", "wrong": [
            { "reason": "no tool", "step": 2 }, { "reason": "no link yet", "step": 3 } ] });
        let judged = read(Part::ToolPromptAlignment, &examined.plan, &wrong, None).unwrap();
        assert_eq!((judged.value, judged.issues), (0.5, vec![Issue::of(3, Fault::WrongTool, "no link yet")]));
    }

    #[test]
    fn the_prompts_are_as_they_were() {
        let plan = reader::read(LISTING_1);
        let specs =
            [("RAG", "Reads transcripts."), ("T2S", "Asks the database.")].map(|(name, description)| {
                let spec = super::super::tools::ToolSpec {
                    description: description.to_owned(),
                    ..Default::default()
                };
                (name.to_owned(), spec)
            });
        let tools = Toolbox::new(&specs.into_iter().collect());
        let mut text = String::new();
        for (part, reference) in ASKED.into_iter().zip([None, Some(&plan), None]) {
            let q = question(part, QUERY, &plan, &tools, reference).unwrap();
            text.push_str(&format!(
                "# {}\n## system\n{}\n## user\n{}\n## form\n{:#}\n",
                q.key, q.prompt.system, q.prompt.user, q.form.schema
            ));
        }
        crate::measure::testing::golden("plan_judged", &text);
        assert!(question(Part::Format, QUERY, &plan, &tools, None).is_none());
    }
}
