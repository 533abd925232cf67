//! The HTML report: figures and explanations.
//!
//! In: figures and evaluated traces. Out: one self-contained HTML file without scripts, network requests or
//! fonts.

pub mod draw;
pub mod html;
pub mod sample;
pub mod tree;

use draw::{Curve, EvaluatorRow};
use html::Html;
use sample::Explanation;
use tree::TraceTree;

/// Trees in one page, to limit its size. Trees that differ from the annotations come first.
const MAX_TREES: usize = 150;

/// The content of the page.
#[derive(Default)]
pub struct ReportContent {
    pub title: String,
    /// The tables of the terminal output.
    pub tables: Vec<String>,
    /// Columns of the heat map: categories.
    pub columns: Vec<&'static str>,
    /// The rows of the heat map: evaluators.
    pub rows: Vec<EvaluatorRow>,
    /// One curve per metric.
    pub curves: Vec<Curve>,
    /// Every explanation; the page shows a sample.
    pub explanations: Vec<Explanation>,
    pub trees: Vec<TraceTree>,
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'\"><meta name=\"viewport\" content=\"width=device-width\"><style>\
body{font:14px/1.45 system-ui,sans-serif;color:#111;background:#fff;max-width:1200px;margin:2em auto;padding:0 1em}\
h2{margin-top:2em;border-bottom:1px solid #ccc}pre{overflow-x:auto;font-size:12px;line-height:1.35}\
svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif}.frame{fill:none;stroke:#999}\
.curve{fill:none;stroke:#2563a8;stroke-width:1.5}circle{fill:#2563a8}.now{fill:none;stroke:#b3261e;stroke-width:2}\
.curves{display:flex;flex-wrap:wrap}figure{margin:0}figcaption{text-align:center}\
code{font-size:12px;color:#555}summary{cursor:pointer;margin-top:1em}\
.span{border-left:2px solid #ccc;padding-left:.6em;margin-top:.5em;break-inside:avoid}\
.metric{margin-left:1em}.finding{margin-left:1em;overflow-wrap:anywhere}\
q{color:#444;font-family:ui-monospace,monospace;font-size:12px;unicode-bidi:isolate;white-space:pre-wrap}\
.mark{margin-left:1em;color:#5b3a8c;overflow-wrap:anywhere}.fold{color:#666}.category{color:#555;font-style:italic}\
.fail,.miss{color:#b3261e;font-weight:600}.pass,.hit{color:#1a7f37;font-weight:600}.over{color:#9a6700;font-weight:600}\
.none{color:#666}li{margin-bottom:.8em;break-inside:avoid}\
@media print{body{max-width:none;margin:0;font-size:11px}pre{white-space:pre-wrap;font-size:9px}\
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\
</style><title>";

impl ReportContent {
    pub fn html(&self) -> String {
        let mut out = Html::default();
        out.raw(HEAD).text(&self.title).raw("</title></head><body><h1>").text(&self.title).raw("</h1>");
        for table in &self.tables {
            out.raw("<pre>").text(table).raw("</pre>");
        }
        if !self.rows.is_empty() {
            out.raw(
                "<h2>F1 by category</h2><p>Rows are evaluators, columns the categories of the taxonomy.</p>",
            );
            draw::heat_map(&self.columns, &self.rows, &mut out);
        }
        if !self.curves.is_empty() {
            out.raw(
                "<h2>Precision and recall by threshold</h2><p>Each point is a threshold: scores below it \
                     fail. The red ring is the configured one.</p><div class=\"curves\">",
            );
            self.curves.iter().for_each(|curve| draw::curve(curve, &mut out));
            out.raw("</div>");
        }
        sample::html(&self.explanations, &mut out);
        self.trees(&mut out);
        out.raw("</body></html>\n");
        out.into_string()
    }

    fn trees(&self, out: &mut Html) {
        if self.trees.is_empty() {
            return;
        }
        out.raw(
            "<h2>Traces</h2><p>Failing metrics at the spans they are written on, and the annotations. A \
                 finding on an agent or a step counts at one of its calls.</p>",
        );
        let (differing, agreeing): (Vec<&TraceTree>, Vec<&TraceTree>) =
            self.trees.iter().partition(|t| t.differs);
        differing.iter().chain(&agreeing).take(MAX_TREES).for_each(|tree| out.append(&tree.html));
        if self.trees.len() > MAX_TREES {
            out.raw("<p>").count(self.trees.len() - MAX_TREES).raw(" more traces are not shown</p>");
        }
    }
}
