//! What the records say in sentences: conclusions, the figures in words, warnings and errors.

use pciescope_core::Record;

use super::{safe, sentence, short_title};
use crate::facts::{self, Conclusions};
use crate::model::{self, Notice, Section};
use crate::style::without_colours;

/// Each kind of warning and error once, with a count; the other texts of its kind are folded below it.
pub fn notices(page: &mut String, records: &[Record]) {
    let notices = model::notices(records);
    if notices.is_empty() {
        return;
    }
    let mut kinds: Vec<Vec<&Notice>> = Vec::new();
    for notice in &notices {
        let is_same = |kind: &&mut Vec<&Notice>| kind[0].code == notice.code && kind[0].is_error == notice.is_error;
        match kinds.iter_mut().find(is_same) {
            Some(kind) => kind.push(notice),
            None => kinds.push(vec![notice]),
        }
    }
    page.push_str("<section class=\"card notices\" id=\"notices\">\n<h2>Warnings and errors</h2>\n<ul>\n");
    for kind in &kinds {
        let first = kind[0];
        let (class, word) = if first.is_error { ("error", "error") } else { ("warning", "warning") };
        let count: usize = kind.iter().map(|notice| notice.count).sum();
        let times = if count > 1 { format!(" ({count} records)") } else { String::new() };
        *page += &format!(
            "<li class=\"{class}\"><strong>{word}</strong> <code>{}</code>{times}: {}",
            safe(&first.code),
            sentence(&first.text)
        );
        let mut hints: Vec<&str> = kind.iter().filter_map(|notice| notice.hint.as_deref()).collect();
        hints.dedup();
        if let Some(hint) = hints.first() {
            *page += &format!("<br><span class=\"hint\">What to do: {}</span>", sentence(hint));
        }
        if kind.len() > 1 {
            *page += &format!("\n<details><summary>{} more of its kind</summary>\n<ul>\n", kind.len() - 1);
            for notice in kind[1..].iter().take(MOST_NOTICES) {
                let times = if notice.count > 1 { format!(" ({} records)", notice.count) } else { String::new() };
                let hint = notice.hint.as_deref().filter(|hint| Some(hint) != hints.first());
                let hint = hint.map(|hint| format!(" What to do: {hint}")).unwrap_or_default();
                *page += &format!("<li>{}{times}{}</li>\n", sentence(&notice.text), sentence(&hint));
            }
            if kind.len() > MOST_NOTICES + 1 {
                *page += &format!("<li>And {} more; the records have all.</li>\n", kind.len() - 1 - MOST_NOTICES);
            }
            page.push_str("</ul></details>");
        }
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n</section>\n");
}

/// Upper limit of the texts of a kind.
const MOST_NOTICES: usize = 100;

/// What is good, what is doubtful, what to do; then the figures of each section in words.
pub fn write(page: &mut String, conclusions: &Conclusions, sections: &[Section]) {
    page.push_str("<section class=\"card\" id=\"summary\">\n<h2>In short</h2>\n<div class=\"verdicts\">\n");
    for ((title, nothing, statements), class) in conclusions.lists().into_iter().zip(["good", "doubtful", "todo"]) {
        *page += &format!("<div class=\"{class}\">\n<h3>{title}</h3>\n");
        if statements.is_empty() {
            *page += &format!("<p class=\"line\">{nothing}</p>\n");
        } else {
            page.push_str("<ul>\n");
            for statement in statements {
                let (anchor, words) = match statement.place {
                    facts::Place::Section(number) => (format!("s{number}"), short_title(&sections[number], sections)),
                    facts::Place::Notices => ("notices".to_owned(), "warnings".to_owned()),
                };
                *page +=
                    &format!("<li>{} <a href=\"#{anchor}\">{}</a></li>\n", sentence(&statement.text), safe(&words));
            }
            page.push_str("</ul>\n");
        }
        page.push_str("</div>\n");
    }
    page.push_str("</div>\n<details><summary>The rules behind these sentences</summary>\n<ul>\n");
    for rule in facts::rules(sections) {
        *page += &format!("<li>{}</li>\n", safe(&rule));
    }
    page.push_str("</ul></details>\n");
    page.push_str("<h3>The figures in words</h3>\n<ul class=\"short\">\n");
    for (number, facts) in facts::of_sections(sections) {
        let lines: Vec<String> = facts.lines.iter().map(|line| without_colours(line)).collect();
        *page +=
            &format!("<li><a href=\"#s{number}\">{}</a> {}</li>\n", safe(&facts.title), sentence(&lines.join(". ")));
    }
    page.push_str("</ul>\n");
    page.push_str("</section>\n");
}
