// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and completion scripts, from the table of commands.

mod examples;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::args::Cli;

/// First line of a page.
const HEAD: &str =
    ".\\\" SPDX-License-Identifier: MIT OR Apache-2.0. Generated: reserv gen man DIR\n";

/// `reserv.1` and one page per command. The pages carry no date, so that equal tables give equal
/// pages.
pub fn man(dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let mut command = Cli::command();
    command.build();
    let mut written = Vec::new();
    let mut page = |command: clap::Command, name: &str| -> io::Result<()> {
        let man = clap_mangen::Man::new(command.display_name(name).version(None::<&str>))
            .title(name.to_uppercase())
            .section("1")
            .date("")
            .source("Reserv")
            .manual("Reserv");
        let mut text = Vec::new();
        man.render(&mut text)?;
        let file = format!("{name}.1");
        // The text after the options is about exit status, environment and paths.
        let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\n", ".SH NOTES\n");
        let text = text + &shown(name);
        fs::write(dir.join(&file), format!("{HEAD}{text}"))?;
        written.push(file);
        Ok(())
    };
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("reserv-{}", sub.get_name());
        page(sub.clone().bin_name(format!("reserv {}", sub.get_name())), &name)?;
        for below in sub.get_subcommands().filter(|below| !below.is_hide_set()) {
            let words = format!("reserv {} {}", sub.get_name(), below.get_name());
            page(below.clone().bin_name(&words), &words.replace(' ', "-"))?;
        }
    }
    page(command.clone(), "reserv")?;
    Ok(written)
}

/// The examples of a page.
fn shown(page: &str) -> String {
    let words = page.trim_start_matches("reserv").trim_start_matches('-').replace('-', " ");
    let found = examples::EXAMPLES.iter().find(|(of, _)| *of == words);
    let mut text = String::new();
    for (line, does) in found.into_iter().flat_map(|(_, both)| both) {
        // A hyphen of a command is one that can be copied.
        let line = line.replace('-', "\\-");
        let _ = write!(text, ".TP\n.B {line}\n{does}\n");
    }
    if text.is_empty() { text } else { format!(".SH EXAMPLES\n{text}") }
}

/// The scripts of all shells.
pub fn completions(dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    Shell::value_variants()
        .iter()
        .map(|shell| {
            let path = clap_complete::generate_to(*shell, &mut Cli::command(), "reserv", dir)?;
            fs::write(&path, with_names(*shell, &fs::read_to_string(&path)?))?;
            Ok(path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        })
        .collect()
}

/// The script of one shell on standard output.
pub fn completion(shell: Shell, out: &mut dyn io::Write) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "reserv", &mut script);
    // Who reads no further has enough.
    let _ = out.write_all(with_names(shell, &String::from_utf8_lossy(&script)).as_bytes());
}

/// A script that asks `reserv complete` for what only the running Reserv knows.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{}", include_str!("generate/names.bash")),
        // Where a command takes any word, it is asked.
        Shell::Zsh => {
            let names = include_str!("generate/names.zsh");
            let script = script.replace(":_default'", ":_reserv_names'");
            script.replacen("_reserv() {", &format!("{names}\n_reserv() {{"), 1)
        }
        // An option's value has no words but the option's own.
        Shell::Fish => {
            let taken = |line: &&str| {
                line.ends_with(" -r")
                    && (line.contains("_subcommand run\"") || line.contains(" -l net "))
            };
            let lines = script.lines().map(|line| match Some(line).filter(taken) {
                Some(line) => format!("{line} -f -a \"(__reserv_names)\"\n"),
                None => format!("{line}\n"),
            });
            format!("{}{}", include_str!("generate/names.fish"), lines.collect::<String>())
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// As a shell does: blanks part words, and ' keeps them together.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let joined =
            parts.map(
                |(at, part)| {
                    if at % 2 == 0 { part.to_owned() } else { part.replace(' ', "\u{1}") }
                },
            );
        let joined: String = joined.collect();
        joined.split(' ').map(|word| word.replace('\u{1}', " ")).collect()
    }

    #[test]
    fn every_page_has_two_examples_that_are_understood() {
        let command = Cli::command();
        let mut pages = Vec::new();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            pages.push(sub.get_name().to_owned());
            let below = sub.get_subcommands();
            pages.extend(below.map(|below| format!("{} {}", sub.get_name(), below.get_name())));
        }
        let known: Vec<&str> = examples::EXAMPLES.iter().map(|(page, _)| *page).collect();
        let without: Vec<_> = pages.iter().filter(|page| !known.contains(&page.as_str())).collect();
        assert!(without.is_empty(), "no examples: {without:?}");
        assert_eq!(known.len(), pages.len(), "examples of a page that there is not");
        for (page, both) in examples::EXAMPLES {
            assert_ne!(both[0].0, both[1].0);
            for (line, does) in both {
                assert!(
                    line.starts_with(&format!("reserv {page}")) || page.split(' ').count() == 1
                );
                assert!(Cli::try_parse_from(words(line)).is_ok(), "{line}");
                assert!(does.ends_with(['.', '?']) || does.contains(": reserv"), "{does}");
            }
            assert!(
                shown(&format!("reserv-{}", page.replace(' ', "-"))).contains(".SH EXAMPLES\n")
            );
        }
    }
}
