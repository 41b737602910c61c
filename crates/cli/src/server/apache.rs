// SPDX-License-Identifier: MIT OR Apache-2.0
//! Apache: `apachectl -t` tests the configuration, and says which files it has and which modules.

use std::io::ErrorKind;
use std::path::Path;

use super::{APACHE, Said, ask};

const WORDS: &[&str] = &["-t", "-D", "DUMP_INCLUDES", "-D", "DUMP_MODULES"];

pub(super) fn read(config: Option<&Path>) -> Result<Said, String> {
    // Debian's script sets the variables that its configuration uses.
    let option = config.map(|file| (APACHE.option, file));
    let out = ["apache2ctl", "apachectl", "httpd"]
        .iter()
        .map(|program| ask(program, WORDS, option))
        .find(|out| !matches!(out, Err(e) if e.kind() == ErrorKind::NotFound))
        .unwrap_or_else(|| Err(ErrorKind::NotFound.into()))
        .map_err(|e| format!("apachectl: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        // Syntax errors begin with AH, as warnings do; what follows them is the reason.
        let wrong: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("AH00558") && !line.starts_with("Action "))
            .take(2)
            .collect();
        return Err(format!("Apache refuses it: {}", wrong.join(" ")));
    }
    let mut said = Said::default();
    for file in included(&text) {
        let bytes = std::fs::read(file).map_err(|e| format!("{file}: {e}"))?;
        read_file(file, &String::from_utf8_lossy(&bytes), &mut said);
    }
    // It is in Apache where a file that is skipped (<IfModule>, <IfDefine>) does not load it.
    let loaded = text.lines().any(|line| line.trim_start().starts_with("reserv_module "));
    if !loaded {
        said.module = None;
    }
    Ok(said)
}

/// The files in the output: `(*) /etc/apache2/apache2.conf`, `(146) /etc/…`.
fn included(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix('(')?.split_once(") "))
        .filter(|(from, _)| *from == "*" || from.chars().all(|sign| sign.is_ascii_digit()))
        .map(|(_, file)| file)
        .collect()
}

/// The words of a line: quotes as Apache's.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut signs = line.trim().chars().peekable();
    while let Some(sign) = signs.next() {
        if sign.is_whitespace() {
            continue;
        }
        let quote = matches!(sign, '"' | '\'').then_some(sign);
        let mut word = if quote.is_some() { String::new() } else { String::from(sign) };
        while let Some(next) = signs.next() {
            match (quote, next) {
                (Some(_), '\\') => word.extend(signs.next()),
                (Some(quote), _) if next == quote => break,
                (None, _) if next.is_whitespace() => break,
                _ => word.push(next),
            }
        }
        found.push(word);
    }
    found
}

fn read_file(file: &str, text: &str, said: &mut Said) {
    // Names of variables and of macros' parameters begin with these.
    const SIGNS: &[char] = &['$', '@', '%'];
    let (mut whole, mut begun) = (String::new(), 1);
    for (number, line) in text.lines().enumerate() {
        if whole.is_empty() {
            begun = number + 1;
        }
        if let Some(part) = line.strip_suffix('\\') {
            whole.push_str(part);
            continue;
        }
        whole.push_str(line);
        let place = format!("{file}:{begun}");
        let found = words(&std::mem::take(&mut whole));
        let name = found.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let rest: Vec<&str> = found.iter().skip(1).map(String::as_str).collect();
        match (name.as_str(), &rest[..]) {
            ("loadmodule", ["reserv_module", _]) => said.module = Some(place),
            ("reservengine", [on]) if on.eq_ignore_ascii_case("on") => said.on.push(place),
            ("reservshare", [value]) | ("reservclient", [_, value]) => {
                said.share(value, SIGNS, &place);
            }
            ("setenv", [name, value]) | ("proxyfcgisetenvif", [_, name, value]) => {
                said.pass(name, value, SIGNS, &place);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_said_of_reserv_is_found_with_its_place() {
        let text = "LoadModule reserv_module /usr/lib/mod_reserv.so\n\
                    # ReservShare in/comment\n\
                    reservengine ON\n\
                    <VirtualHost *:80>\n  ReservShare \"web/a b\"\n\
                    ReservClient 192.0.2.0/24 \\\n   web/partners\n\
                    ReservShare web/${SITE}\nReservErrorCode 503\n\
                    <Location /x>\nReservEngine Off\n</Location></VirtualHost>\n\
                    ProxyFCGISetEnvIf \"true\" RESERV_CONTAINER \"web/p\"\n\
                    SetEnv OTHER web/none\n";
        let mut said = Said::default();
        read_file("f", text, &mut said);
        assert_eq!(said.module.as_deref(), Some("f:1"));
        assert_eq!(said.on, ["f:3"]);
        let pairs = |of: &[(&str, &str)]| -> BTreeMap<String, String> {
            of.iter().map(|(value, place)| ((*value).to_owned(), (*place).to_owned())).collect()
        };
        assert_eq!(said.shares, pairs(&[("web/a b", "f:5"), ("web/partners", "f:6")]));
        assert_eq!(said.passed, pairs(&[("web/p", "f:13")]));
        assert_eq!(said.later, pairs(&[("web/${SITE}", "f:8")]));
    }

    #[test]
    fn the_files_that_apache_names_are_read() {
        let text = "Included configuration files:\n  (*) /etc/a.conf\n    (14) /etc/b c.conf\n\
                    Loaded Modules:\n core_module (static)\n";
        assert_eq!(included(text), ["/etc/a.conf", "/etc/b c.conf"]);
    }
}
