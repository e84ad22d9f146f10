//! Progress and time left, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};
use pciescope_hw::probe::Watch;

use crate::cmd::top::variable;
use crate::cmd::{Ctx, Stop};
use pciescope_tui::Theme;

/// A bar that looks like `template`, hidden if the standard error is not a terminal. It has no ticker, because the
/// ticker's thread would wake up during the measurement.
///
/// # Panics
/// If indicatif does not take the template.
pub fn bar(ctx: &Ctx, template: &'static str) -> ProgressBar {
    let bar = if ctx.terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template(template).expect("the template is a constant that indicatif accepts");
    let has_unicode = Theme::of_environment(variable).has_unicode;
    bar.set_style(if has_unicode { style } else { style.progress_chars("#- ") });
    bar
}

/// What a probe reports to: a bar on the standard error if that is a terminal, and the stop flag.
pub struct Progress {
    bar: ProgressBar,
    stop: Stop,
}

impl Progress {
    /// A bar that begins to show with the first report.
    pub fn new(ctx: &Ctx, what: &str) -> Self {
        let bar = bar(ctx, "{msg} {bar:40} {percent:>3} %, {eta} left");
        bar.set_message(what.to_owned());
        Progress { bar, stop: ctx.stop.clone() }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn progress(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
    fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }
}
