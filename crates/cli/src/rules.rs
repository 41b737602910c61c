// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rule`: single rules added, removed and listed. The daemon takes rules all at once, so the
//! running ones are asked for, changed and given back; trees are left as they are.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use reserv_control::{Changes, Command, Mode, Up as Wish};
use reserv_model::{Config, Principal, Rule};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args;
use crate::control::Control;
use crate::error::{Error, Kind};
use crate::{note, say, say_json};

const EXAMPLE: &str = "for example: reserv rule add uid=www-data command='php*' to cpu=web/site1";

/// A rule from words, by way of the grammar of configurations: whose words and refusals are its.
/// Conditions that may be a number.
const NUMBERS: &[&str] = &["uid", "gid", "group", "port", "local_port", "protocol"];

fn parse(words: &[String]) -> Result<Rule, Error> {
    let mut sides = words.splitn(2, |word| word == "to");
    let conditions = sides.next().unwrap_or_default();
    let queues = sides
        .next()
        .ok_or_else(|| Error::usage("where to? the word 'to' is missing").hint(EXAMPLE))?;
    let table = |words: &[String], numbers: &[&str]| {
        let mut table = toml::Table::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| Error::usage(format!("'{word}' is no KEY=VALUE")).hint(EXAMPLE))?;
            let number = value.parse::<u32>().ok().filter(|_| numbers.contains(&key));
            let number = number.map(i64::from);
            let value =
                number.map_or_else(|| toml::Value::String(value.to_owned()), toml::Value::Integer);
            if table.insert(key.to_owned(), value).is_some() {
                return Err(Error::usage(format!("'{key}' is named twice")));
            }
        }
        Ok(table)
    };
    // A queue, a program and a unit may be called by a number.
    let mut rule: toml::Table = table(queues, &[])?;
    rule.insert("match".to_owned(), toml::Value::Table(table(conditions, NUMBERS)?));
    let refused = |e: toml::de::Error| Error::usage(e.message().to_owned()).hint(EXAMPLE);
    let rule: Rule = rule.try_into().map_err(refused)?;
    Config { rules: vec![rule.clone()], ..Config::default() }.check().map_err(|e| {
        let error = Error::usage(e.context.trim_start_matches("rule 1: ").to_owned());
        if e.hint.is_empty() { error } else { error.hint(e.hint) }
    })?;
    Ok(rule)
}

/// As it is written after `rule add`.
fn words(rule: &Rule) -> String {
    let plain = |value: &toml::Value| match value {
        // A control character is not the terminal's, nor the end of the line.
        toml::Value::String(text) if text.chars().any(char::is_control) => format!("{text:?}"),
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let conditions = toml::Table::try_from(&rule.conditions).unwrap_or_default();
    let mut text = String::new();
    for (key, value) in &conditions {
        let _ = write!(text, "{key}={} ", plain(value));
    }
    text.push_str("to");
    for (resource, queue) in &rule.queues {
        let _ = write!(text, " {resource}={queue}");
    }
    if let Some(rate) = rule.receive {
        let _ = write!(text, " receive={rate}");
    }
    if let Some(burst) = rule.receive_burst {
        let _ = write!(text, " receive-burst={burst}");
    }
    text
}

/// Users and groups of rules that this machine does not know, in words: such a rule holds for
/// nobody, until somebody is called so.
pub(crate) fn unknown(rules: &[Rule]) -> Option<String> {
    let user = |name: &str| matches!(nix::unistd::User::from_name(name), Ok(None));
    let group = |name: &str| matches!(nix::unistd::Group::from_name(name), Ok(None));
    let named = |principal: &Option<Principal>| match principal {
        // All digits are a number where nobody is called so.
        Some(Principal::Name(name)) if name.parse::<u32>().is_err() => Some(name.clone()),
        _ => None,
    };
    let users = rules.iter().filter_map(|rule| named(&rule.conditions.uid)).filter(|n| user(n));
    let groups = rules.iter().flat_map(|rule| [&rule.conditions.gid, &rule.conditions.group]);
    let groups = groups.filter_map(named).filter(|name| group(name));
    let words: BTreeSet<String> = users
        .map(|name| format!("user '{name}'"))
        .chain(groups.map(|name| format!("group '{name}'")))
        .collect();
    let words: Vec<String> = words.into_iter().collect();
    (!words.is_empty())
        .then(|| format!("there is no {} here: such a rule holds for nobody", words.join(", no ")))
}

/// What came in by a rule over a link.
#[derive(Deserialize, Serialize)]
struct Count {
    rule: usize,
    link: String,
    packets: u64,
    bytes: u64,
    dropped: u64,
}

/// What is told of rules; `busy`: the links that did not tell what came in.
#[derive(Deserialize)]
struct Told {
    rules: Vec<Rule>,
    #[serde(default)]
    counts: Vec<Count>,
    #[serde(default)]
    busy: Vec<String>,
}

/// The rules that run. All resources may be late: rules are reservd's own.
fn told(control: &mut Control) -> Result<Told, Error> {
    control.ask::<Told>(&Command::Rules {})
}

/// The rules instead of those that run, if these are what was seen of them.
fn put(control: &mut Control, seen: Vec<Rule>, rules: Vec<Rule>) -> Result<(), Error> {
    let config = Some(Box::new(Config { rules, ..Config::default() }));
    let rules_were = Some(seen);
    let wish = Wish { config, rules_were, mode: Mode::Refuse, ..Wish::default() };
    control.ask::<Changes>(&Command::Up(wish)).map(drop)
}

/// Others change them too: so often it is tried again.
const TRIES: u32 = 100;

/// The command.
pub(crate) fn rule(args: &args::Rule, json: bool) -> Result<ExitCode, Error> {
    let new = match args {
        args::Rule::Add { words, .. } => Some(parse(words)?),
        _ => None,
    };
    let mut control = Control::need()?;
    let Told { rules: seen, counts, busy } = told(&mut control)?;
    let line = |n: usize, rule: &Rule| format!("{} {}\n", n + 1, words(rule));
    let at = |n: u32| usize::try_from(n).unwrap_or(usize::MAX) - 1;
    // Of the rules that run already it was said when they came.
    let nobody = unknown(new.as_slice());
    let (mark, changed) = match (args, new) {
        (args::Rule::Add { before, .. }, Some(rule)) => {
            let mut place = 0;
            change(&mut control, seen, |rules| {
                place = before.map_or(rules.len(), at).min(rules.len());
                rules.insert(place, rule.clone());
                Ok(())
            })?;
            ('+', line(place, &rule))
        }
        (args::Rule::Rm { number }, _) => {
            let Some(gone) = seen.get(at(*number)).cloned() else {
                let error = Error::new(Kind::NotFound, format!("there is no rule {number}"));
                return Err(error.hint("'reserv rule list' numbers them"));
            };
            change(&mut control, seen, |rules| {
                if rules.get(at(*number)) != Some(&gone) {
                    let text =
                        format!("rule {number} is another one by now: somebody else changed them");
                    return Err(Error::refused(text).hint("'reserv rule list' numbers them"));
                }
                rules.remove(at(*number));
                Ok(())
            })?;
            ('-', line(at(*number), &gone))
        }
        _ => {
            let missing = (!busy.is_empty()).then(|| {
                let links = busy.join(", ");
                format!("{links}: busy; what came in there is not told, ask again")
            });
            note(missing);
            if json {
                return say_json(&json!({ "rules": seen, "counts": counts, "busy": busy }));
            }
            let mut text = String::new();
            for (n, rule) in seen.iter().enumerate() {
                text.push_str(&line(n, rule));
                for count in counts.iter().filter(|count| count.rule == n + 1) {
                    let Count { link, packets, bytes, dropped, .. } = count;
                    let _ = writeln!(
                        text,
                        "    {link}: {packets} packets, {bytes} bytes came in, {dropped} dropped"
                    );
                }
            }
            return say(&text);
        }
    };
    note(nobody);
    if json {
        say_json(&json!({ "changed": changed.trim_end() }))
    } else {
        say(&format!("{mark} {changed}"))
    }
}

/// Changes the rules that run, whoever else does.
fn change(
    control: &mut Control,
    mut seen: Vec<Rule>,
    mut edit: impl FnMut(&mut Vec<Rule>) -> Result<(), Error>,
) -> Result<(), Error> {
    for left in (0..TRIES).rev() {
        let mut rules = seen.clone();
        edit(&mut rules)?;
        match put(control, seen, rules) {
            Err(error) if error.errno == Some(libc::EAGAIN) && left > 0 => {}
            done => return done,
        }
        seen = told(control)?.rules;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_is_listed_can_be_added() {
        for text in [
            "uid=www-data to cpu=web/site1",
            "command=php* gid=100 unit=nginx.service to container=web",
            "local_port=443 protocol=tcp remote=10.0.0.0/8 to eth0=web",
            "cgroup=/system.slice to cpu=7 eth0=a",
            "group=customers to cpu=users/{user} eth0={user}",
            "from=10.66.0.0/16 local_port=80 protocol=tcp to eth0=flood receive=4/s receive-burst=9",
            "from=2001:db8::/32 to receive=nothing",
            "from=any to eth0=a",
        ] {
            let rule = parse(&given(text)).unwrap();
            let said = words(&rule);
            assert_eq!(parse(&given(&said)).unwrap(), rule, "{said}");
            for word in text.split(' ') {
                assert!(said.contains(word), "{said}");
            }
        }
    }

    #[test]
    fn who_is_not_there_is_named() {
        let rules = |texts: &[&str]| -> Vec<Rule> {
            texts.iter().map(|text| parse(&given(text)).unwrap()).collect()
        };
        let known = ["uid=root to cpu=a", "uid=4711 gid=root to cpu=a", "group=root to cpu=a"];
        assert_eq!(unknown(&rules(&known)), None);
        let said = unknown(&rules(&["uid=no-such-user to cpu=a", "gid=no-such-group to cpu=a"]));
        assert_eq!(
            said.as_deref(),
            Some(
                "there is no group 'no-such-group', no user 'no-such-user' here: such a rule holds \
                 for nobody"
            )
        );
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (text, why) in [
            ("uid=1", "'to' is missing"),
            ("uid=1 to", "names no queue"),
            ("to cpu=a", "without a condition"),
            ("user=1 to cpu=a", "unknown field"),
            ("uid=1 uid=2 to cpu=a", "twice"),
            ("uid to cpu=a", "no KEY=VALUE"),
            ("port=80 to cpu=a", "is no link"),
            ("from=10.0.0.0/8 to cpu=a", "is no link"),
            ("from=10.0.0.0/8 to", "names no queue"),
            ("from=10.0.0.1/8 to eth0=a", "bits beyond"),
            ("from=none to eth0=a", "\"none\""),
            ("from=any port=80 to eth0=a", "port beside from"),
            ("from=any remote=10.0.0.0/8 to eth0=a", "remote beside from"),
            ("from=any uid=0 to eth0=a", "one of the two"),
            ("from=any protocol=icmp local_port=7 to eth0=a", "no ports"),
            ("from=any to receive=0/s", "\"0/s\""),
            ("from=any to receive=nothing receive-burst=3", "without a rate"),
            ("from=any to eth0=a receive-burst=3", "without a rate"),
            ("from=any to receive=5/s receive-burst=x", "\"x\""),
            ("uid=0 to cpu=a receive=5/s", "who comes"),
            ("local_port=80 to receive=nothing", "who comes"),
            ("uid=1 port=80 to eth0=a", "one of the two"),
            ("uid=1 to cpu={user}/a", "is no queue"),
            ("uid=1 to cpu=users/{uid}", "is no queue"),
            ("uid=1 to cpu=users/a{user}", "is no queue"),
            ("uid=1 to container=users/{user}", "of a container there is none"),
            ("port=80 to eth0=users/{user}", "a packet has no user"),
        ] {
            let error = parse(&given(text)).unwrap_err();
            assert_eq!(error.kind, Kind::Usage);
            assert!(error.message.contains(why), "{text}: {error}");
        }
    }
}
