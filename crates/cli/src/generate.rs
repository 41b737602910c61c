// SPDX-License-Identifier: MIT OR Apache-2.0
//! Man pages and completion scripts, from the table of commands.

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

/// The scripts of all shells.
pub fn completions(dir: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    Shell::value_variants()
        .iter()
        .map(|shell| {
            let path = clap_complete::generate_to(*shell, &mut Cli::command(), "reserv", dir)?;
            Ok(path.file_name().unwrap_or_default().to_string_lossy().into_owned())
        })
        .collect()
}

/// The script of one shell on standard output.
pub fn completion(shell: Shell, out: &mut dyn io::Write) {
    clap_complete::generate(shell, &mut Cli::command(), "reserv", out);
}
