// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the next start of reservd sets up: the boot file, and whether it says what runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use reserv_control::{Command, Saved};
use reserv_model::{Config, Name, NodeConfig, NodeKind, ResourceConfig, Written};
use serde_json::Value;

use crate::control::Control;
use crate::delta;
use crate::error::Error;

/// Writes what reservd is started with.
pub(crate) fn write(text: &str) -> Result<(), Error> {
    let path = crate::settings::boot_file();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| Error::io(folder.display(), &e))?;
    }
    crate::whole::write(&path, text)
}

/// One line, if something that runs is lost at the next start. Root's changes are; nobody else may
/// look.
pub(crate) fn lost() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let mut control = Control::connect().ok()??;
    // Who does not answer would be waited for; and what is missing is not compared.
    let status = control.ask::<Value>(&Command::Status {}).ok()?;
    if !status["resources"].as_object()?.values().all(|one| one["state"] == "running") {
        return None;
    }
    let Saved { config, missing } = control.ask(&Command::Save {}).ok()?;
    if !missing.is_empty() {
        return None;
    }
    let path = crate::settings::boot_file();
    let boot = match fs::read_to_string(&path) {
        Ok(text) => toml::from_str::<Written>(&text).ok().and_then(|text| text.try_into().ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Some(Config::default()),
        Err(_) => None,
    };
    let Some(boot) = boot else {
        return Some(format!("at the next start {} cannot be read", path.display()));
    };
    let first = differences(boot, &config);
    let more = first.len().checked_sub(1)?;
    let others = match more {
        0 => String::new(),
        1 => " and one more".to_owned(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "not kept at the next start: {}{others}; 'reserv save --boot' keeps all",
        first[0]
    ))
}

/// What differs, each by its name.
fn differences(mut boot: Config, running: &Config) -> Vec<String> {
    // A tree that is not spoken of has its q0.
    let with_q0 = |resource: &mut ResourceConfig| {
        if let Ok(q0) = "q0".parse() {
            resource.nodes.entry(q0).or_insert_with(|| NodeConfig::new(NodeKind::Queue));
        }
    };
    with_q0(boot.cpu.get_or_insert_with(ResourceConfig::default));
    boot.count.values_mut().for_each(with_q0);
    // Where limits are not spoken of, they may take the usual.
    let mut wanted = running.clone();
    boot.backlog = Some(boot.backlog.unwrap_or(reserv_model::Memory::DEFAULT));
    wanted.backlog = Some(running.backlog.unwrap_or(reserv_model::Memory::DEFAULT));
    let lines = delta::difference(&boot, &wanted);
    let named = |what: &str| what.strip_prefix("cpu/").unwrap_or(what).to_owned();
    let mut found: Vec<String> = lines.iter().map(|line| named(&line.what)).collect();
    let gone = |old: &BTreeMap<Name, ResourceConfig>| -> Vec<String> {
        old.keys().filter(|name| !running.count.contains_key(*name)).map(Name::to_string).collect()
    };
    found.extend(gone(&boot.count));
    // What a resource is on, and how: it is brought up as the file says.
    for (name, then) in &boot.count {
        let moved = running.count.get(name).is_some_and(|now| now.on != then.on);
        if moved && !found.iter().any(|there| there == name.as_str()) {
            found.push(name.to_string());
        }
    }
    // Where a new container's entries are not spoken of, it has none.
    let whole = |config: &Config, path| {
        let mut container = config.containers.get(path)?.clone();
        container.access.get_or_insert_default();
        Some(container)
    };
    let paths = boot.containers.keys().chain(running.containers.keys());
    for path in paths.filter(|path| whole(&boot, path) != whole(running, path)) {
        let name = format!("container/{path}");
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str::<Written>(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn what_the_file_has_not_is_named() {
        let boot = "[cpu.nodes.a]\nkind = \"queue\"\nshare = 7\n[count.d]\non = \"file:/\"\n";
        let running = "[cpu]\npolicy = \"sfq\"\n[cpu.nodes.q0]\nkind = \"queue\"\nclass = \"ts\"\nshare = \"100\"\n\
            [cpu.nodes.a]\nkind = \"queue\"\nclass = \"ts\"\nshare = \"7\"\n\
            [count.d]\non = \"file:/\"\n[count.d.nodes.q0]\nkind = \"queue\"\nclass = \"ts\"\n";
        let differ = |boot: &str, running: &str| differences(config(boot), &config(running));
        assert_eq!(differ(boot, running), [""; 0], "what a start makes of the file is in it");
        assert_eq!(differ("", "[cpu.nodes.q0]\nkind = \"queue\"\n"), [""; 0]);
        assert_eq!(differ(boot, &running.replace("\"7\"", "\"8\"")), ["a"]);
        assert_eq!(differ(boot, &running[..running.find("[count").unwrap()]), ["d"]);
        let more = "[count.e]\non = \"net:lo\"\n[container.web]\nshare = \"30\"\n";
        assert_eq!(differ(boot, &format!("{running}{more}")), ["e", "container/web"]);
        let rule = "[[rule]]\nmatch = { uid = 1 }\ncpu = \"a\"\n";
        assert_eq!(differ(boot, &format!("{running}{rule}")), ["rule 1"]);
        assert_eq!(differ(&format!("{boot}{rule}"), running), ["rule 1"]);
    }

    #[test]
    fn what_a_resource_is_on_is_compared_whole() {
        let on = |on: &str| config(&format!("[count.d]\non = \"{on}\"\n"));
        let differ = |boot: &str, running: &str| {
            differences(
                on(boot),
                &config(&format!(
                    "[count.d]\non = \"{running}\"\n[count.d.nodes.q0]\nkind = \"queue\"\n[cpu.nodes.q0]\nkind = \"queue\"\n"
                )),
            )
        };
        for (boot, running) in [
            ("link:eth0@10mbit", "link:eth0@20mbit"),
            ("link:eth0", "link+tcx:eth0"),
            ("link:eth0", "link:eth0/stock"),
            ("disk:/dev/vdb", "disk+4:/dev/vdb"),
            ("disk:/dev/vdb", "disk@24mbit:/dev/vdb"),
        ] {
            assert_eq!(differ(boot, running), ["d"], "{boot} {running}");
            assert_eq!(differ(running, boot), ["d"], "{running} {boot}");
            assert_eq!(differ(boot, boot), [""; 0], "{boot}");
        }
        assert_eq!(differ("disk@24mbit:/dev/vdb", "disk@3MB:/dev/vdb"), [""; 0], "as fast");
    }

    #[test]
    fn of_a_container_everything_is_compared() {
        let tree = "[cpu.nodes.q0]\nkind = \"queue\"\n";
        let differ = |boot: &str, running: &str| {
            let of = |more: &str| config(&format!("{tree}[container.web]\nshare = 3\n{more}"));
            differences(of(boot), &of(running))
        };
        assert_eq!(differ("", ""), [""; 0]);
        assert_eq!(differ("", "access = []\n"), [""; 0], "a new one has no entries");
        for more in ["gc = true\n", "access = [\"allow uid 5 use\"]\n", "holds = \"containers\"\n"]
        {
            assert_eq!(differ("", more), ["container/web"], "{more}");
            assert_eq!(differ(more, ""), ["container/web"], "{more}");
            assert_eq!(differ(more, more), [""; 0], "{more}");
        }
    }
}
