// SPDX-License-Identifier: MIT OR Apache-2.0
//! nginx: `nginx -T` tests the configuration and prints all its files.

use std::collections::BTreeMap;
use std::path::Path;

use super::{NGINX, Said, ask};

/// What a variable that `map` or `geo` makes can be, each with its place.
type Values = BTreeMap<String, Vec<(String, String)>>;

pub(super) fn read(config: Option<&Path>) -> Result<Said, String> {
    let out = ask("nginx", &["-T", "-q"], config.map(|file| (NGINX.option, file)))
        .map_err(|e| format!("nginx: {e}"))?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let first = text.lines().find(|line| line.contains("[emerg]")).or(text.lines().next());
        // Before the reason stand the time, and often a process that has ended: `2100#2100: `.
        let why = first.map_or("it does not say why", |line| {
            let why = line.split_once("[emerg] ").map_or(line, |(_, why)| why);
            let rest = why.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '#');
            rest.strip_prefix(": ").unwrap_or(why)
        });
        return Err(format!("nginx refuses it: {why}"));
    }
    Ok(said(&String::from_utf8_lossy(&out.stdout)))
}

/// One word of a configuration, or one of `;`, `{` and `}`.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(char),
}

/// The tokens of a file, each with its line. Quotes and `#` are nginx's: they count where a word
/// begins.
fn tokens(text: &str) -> Vec<(usize, Token)> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\n' => line += 1,
            '#' => while signs.next_if(|sign| *sign != '\n').is_some() {},
            ';' | '{' | '}' => found.push((line, Token::Sign(sign))),
            '"' | '\'' => {
                let (from, mut word) = (line, String::new());
                while let Some(inner) = signs.next() {
                    line += usize::from(inner == '\n');
                    match inner {
                        '\\' => word.extend(signs.next()),
                        _ if inner == sign => break,
                        _ => word.push(inner),
                    }
                }
                found.push((from, Token::Word(word)));
            }
            _ if sign.is_whitespace() => {}
            _ => {
                let mut word = String::from(sign);
                let mut last = sign;
                // The brace of ${name} is part of the word.
                while let Some(next) = signs.next_if(|next| {
                    !(next.is_whitespace() || *next == ';' || (*next == '{' && last != '$'))
                }) {
                    word.push(next);
                    last = next;
                }
                found.push((line, Token::Word(word)));
            }
        }
    }
    found
}

/// What the output of `nginx -T` says of Reserv.
fn said(text: &str) -> Said {
    let mut said = Said::default();
    let mut values = Values::new();
    let mut wanted: Vec<(String, String)> = Vec::new();
    for (file, text) in files(text) {
        let mut words: Vec<String> = Vec::new();
        // The first words of the blocks that are open, outermost first.
        let mut blocks: Vec<Vec<String>> = Vec::new();
        let mut begun = 1;
        for (line, token) in tokens(text) {
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        begun = line;
                    }
                    words.push(word);
                }
                Token::Sign('{') => blocks.push(std::mem::take(&mut words)),
                Token::Sign('}') => {
                    blocks.pop();
                }
                Token::Sign(_) => {
                    let place = format!("{file}:{begun}");
                    directive(&words, blocks.last(), &place, &mut said, &mut values, &mut wanted);
                    words.clear();
                }
            }
        }
    }
    for (value, place) in wanted {
        match value.strip_prefix('$').and_then(|name| values.get(name.trim_matches(['{', '}']))) {
            Some(of) => {
                for (value, place) in of {
                    said.share(value, &['$'], place);
                }
            }
            None => said.share(&value, &['$'], &place),
        }
    }
    said
}

/// The files in the output of `nginx -T`: each after a line with its name.
fn files(text: &str) -> Vec<(&str, &str)> {
    const BEGIN: &str = "# configuration file ";
    let mut found = Vec::new();
    for part in format!("\n{text}").match_indices(&format!("\n{BEGIN}")).map(|(at, _)| at) {
        let rest = &text[part..];
        let Some((name, body)) = rest[BEGIN.len()..].split_once(":\n") else { continue };
        let end = body.find(&format!("\n{BEGIN}")).map_or(body.len(), |end| end + 1);
        found.push((name, &body[..end]));
    }
    found
}

fn directive(
    words: &[String],
    block: Option<&Vec<String>>,
    place: &str,
    said: &mut Said,
    values: &mut Values,
    wanted: &mut Vec<(String, String)>,
) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(["map" | "geo" | "split_clients", .., variable]) =
        block.map(|words| words.iter().map(String::as_str).collect::<Vec<_>>()).as_deref()
    {
        if let [key, value] = words[..]
            && key != "include"
        {
            let name = variable.trim_start_matches('$').to_owned();
            values.entry(name).or_default().push((value.to_owned(), place.to_owned()));
        }
        return;
    }
    match words[..] {
        ["load_module", file] if file.ends_with(NGINX.module) => {
            said.module = Some(place.to_owned());
        }
        ["reserv", "on"] => said.on.push(place.to_owned()),
        ["fastcgi_param", name, value] | ["fastcgi_param", name, value, _] => {
            said.pass(name, value, &['$'], place);
        }
        ["reserv_share", value] => wanted.push((value.to_owned(), place.to_owned())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# configuration file /etc/nginx/nginx.conf:
load_module modules/ngx_http_reserv_module.so; # reserv_share in/comment;
http {
    reserv on;
    map $host $by_host { default web/guests; "shop.example" web/shop; hostnames; ~(?<x>) web/$x; }
    include sites/*;
}

# configuration file /etc/nginx/sites/a:
server {
    location / {
        reserv_share $by_host;
    }
    location /a { reserv_share "web/a b"; reserv_status 503; }
    location ~ \.php$ { fastcgi_param SCRIPT_NAME x; fastcgi_param RESERV_CONTAINER web/p; }
    location /b {
        reserv_share ${other}/x;
        return 200 "reserv_share not/this; #";
    }
}
"#;

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(value, place)| ((*value).to_owned(), (*place).to_owned())).collect()
    }

    #[test]
    fn what_is_said_of_reserv_is_found_with_its_place() {
        let said = said(TEXT);
        assert_eq!(said.module.as_deref(), Some("/etc/nginx/nginx.conf:1"));
        assert_eq!(said.on, ["/etc/nginx/nginx.conf:3"]);
        let main = "/etc/nginx/nginx.conf:4";
        let site = "/etc/nginx/sites/a:5";
        assert_eq!(
            said.shares,
            pairs(&[("web/guests", main), ("web/shop", main), ("web/a b", site)])
        );
        assert_eq!(said.passed, pairs(&[("web/p", "/etc/nginx/sites/a:6")]));
        assert_eq!(said.later, pairs(&[("web/$x", main), ("${other}/x", "/etc/nginx/sites/a:8")]));
    }

    #[test]
    fn a_configuration_without_reserv_says_nothing() {
        let text = TEXT.replace("reserv", "other").replace("RESERV", "OTHER");
        assert_eq!(said(&text), Said::default());
        assert_eq!(said(""), Said::default());
        assert_eq!(said("# configuration file x:\n\"open"), Said::default());
    }
}
