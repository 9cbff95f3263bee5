//! The picture of a soak: faults and repairs of each host over time, and below what a client noticed.

use super::support::Probe;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// A fault.
pub struct Bar {
    /// The place of its host.
    pub lane: u16,
    pub from: Duration,
    pub to: Duration,
    pub what: &'static str,
    /// Whether a guard repaired it; otherwise systemd, the kubelet or the end of the fault.
    pub repaired: bool,
    /// Whether something was not as it should be.
    pub late: bool,
}

pub struct Timeline<'a> {
    pub title: String,
    pub lanes: &'a [String],
    pub bars: Vec<Bar>,
    /// Reads over new connections, by the time since the beginning.
    pub reads: Vec<&'a Probe>,
    pub ended: Duration,
}

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 48.0;
const LANE: f64 = 46.0;
const GRAPH: f64 = 120.0;
/// The slowest read that is drawn to scale, seconds.
const SLOWEST: f64 = 5.0;
/// Reads of so many seconds are one column.
const COLUMN: u64 = 2;

impl Timeline<'_> {
    fn x(&self, at: Duration) -> f64 {
        LEFT + (WIDTH - LEFT - 16.0) * at.as_secs_f64() / self.ended.as_secs_f64().max(1.0)
    }

    pub fn svg(&self) -> String {
        let lanes = LANE * self.lanes.iter().map(|_| 1.0).sum::<f64>();
        let (graph, height) = (TOP + lanes + 28.0, TOP + lanes + GRAPH + 72.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#24292f\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
             <rect x=\"700\" y=\"12\" width=\"12\" height=\"12\" fill=\"#2f6f9f\"/><text x=\"718\" y=\"22\">repaired by a guard</text>\n\
             <rect x=\"860\" y=\"12\" width=\"12\" height=\"12\" fill=\"#9aa7b0\"/><text x=\"878\" y=\"22\">ended by itself</text>\n\
             <rect x=\"1000\" y=\"12\" width=\"12\" height=\"12\" fill=\"#c62828\"/><text x=\"1018\" y=\"22\">not as it should be</text>\n",
            self.title
        );
        for (place, lane) in (0_u16..).zip(self.lanes) {
            let y = TOP + LANE * f64::from(place);
            let _ = writeln!(
                svg,
                "<text x=\"16\" y=\"{}\">{lane}</text><line x1=\"{LEFT}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"#e3e6e8\"/>",
                y + 26.0,
                WIDTH - 16.0,
                y + LANE,
                y + LANE
            );
        }
        for bar in &self.bars {
            let (x, y) = (self.x(bar.from), TOP + LANE * f64::from(bar.lane));
            let wide = (self.x(bar.to) - x).max(2.5);
            let colour = if bar.late {
                "#c62828"
            } else if bar.repaired {
                "#2f6f9f"
            } else {
                "#9aa7b0"
            };
            let _ = writeln!(
                svg,
                "<g><title>{what}, {took:.1} s</title><rect x=\"{x:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{x:.1}\" y=\"{words}\" font-size=\"9\" transform=\"rotate(-18 {x:.1} {words})\">{what}</text></g>",
                what = bar.what,
                took = bar.to.saturating_sub(bar.from).as_secs_f64(),
                top = y + 28.0,
                words = y + 25.0
            );
        }
        self.clients(&mut svg, graph);
        let minutes = self.ended.as_secs() / 60;
        let step = (minutes / 12).max(1);
        for minute in (0..=minutes).step_by(usize::try_from(step).expect("small")) {
            let x = self.x(Duration::from_secs(60 * minute));
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{minute} min</text>",
                graph + GRAPH + 18.0
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The slowest read of each column, and a mark for each column with a failed one.
    fn clients(&self, svg: &mut String, top: f64) {
        let mut columns: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for (at, took, failed) in &self.reads {
            let (slowest, failures) = columns.entry(at.as_secs() / COLUMN).or_default();
            *slowest = slowest.max(took.as_secs_f64());
            *failures += usize::from(failed.is_some());
        }
        let floor = top + GRAPH;
        for seconds in [0.0, 1.0, SLOWEST] {
            let y = floor - GRAPH * (seconds / SLOWEST);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#e3e6e8\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{seconds} s</text>",
                WIDTH - 16.0,
                LEFT - 8.0,
                y + 4.0
            );
        }
        let wide = (self.x(Duration::from_secs(COLUMN)) - LEFT).max(0.8);
        for (column, (slowest, failures)) in &columns {
            let x = self.x(Duration::from_secs(column * COLUMN));
            let tall = GRAPH * (slowest / SLOWEST).min(1.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"#5b8c5a\"/>",
                floor - tall
            );
            if *failures > 0 {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{}\" r=\"2.5\" fill=\"#c62828\"><title>{failures} failed</title></circle>",
                    x,
                    top - 6.0
                );
            }
        }
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\">slowest read over a new connection, in each {COLUMN} s; a red dot: reads failed</text>",
            floor + 38.0
        );
    }
}
