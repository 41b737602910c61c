// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings that a directory of plain files gives.

use super::*;
use crate::fs::fake::Fake;

const HEAD: &str = "resource cpu cpu ns\nresource net0 link bytes\n";

fn place() -> Fake {
    let fake = Fake::new();
    fake.node("container", true);
    fake
}

fn meter(fake: &Fake, path: &str) -> Meter {
    Meter::new(fake, path).unwrap()
}

fn pairs(measured: &Measured, of: Of) -> Vec<(&str, u64, u64)> {
    let one = |row: &Row| (row.sum(of).own, row.sum(of).subtree);
    measured.rows.iter().map(|row| (row.path.as_str(), one(row).0, one(row).1)).collect()
}

#[test]
fn amounts_are_by_container_and_not_by_path() {
    let fake = place();
    let tell = |text: &str| fake.put("container/usage", &format!("{HEAD}{text}"));
    let mut all = meter(&fake, "container");
    tell("container 1.1 containers web cpu 0 70\ncontainer 2.1 threads web/a cpu 70 70");
    assert_eq!(pairs(&all.measure(&fake).unwrap(), Of::Cpu)[0], ("web", 0, 0));
    // One is made anew under its path, and one has come.
    tell(
        "container 1.1 containers web cpu 0 90\ncontainer 2.2 threads web/a cpu 80 80\n\
         container 3.1 threads b cpu 4 4 net0 5 5",
    );
    let measured = all.measure(&fake).unwrap();
    assert_eq!(pairs(&measured, Of::Cpu), [("web", 0, 20), ("web/a", 80, 80), ("b", 4, 4)]);
    assert_eq!(pairs(&measured, Of::Link)[2], ("b", 5, 5));
    // One is renamed, a child is gone, and its parent has what it used.
    tell("container 1.1 containers www cpu 0 95\ncontainer 3.1 threads b cpu 3 3 net0 9 9");
    let measured = all.measure(&fake).unwrap();
    assert_eq!(pairs(&measured, Of::Cpu), [("www", 0, 5), ("b", 0, 0)], "none is negative");
}

#[test]
fn what_was_late_is_told_when_it_answers() {
    let fake = place();
    let tell = |net: &str, used: &str| {
        let text = format!("resource net0 link bytes{net}\ncontainer 1.1 threads a{used}\n");
        fake.put("container/usage", &text);
    };
    let mut all = meter(&fake, "container");
    tell("", " net0 10 10");
    all.measure(&fake).unwrap();
    tell(" late gave no answer", "");
    let measured = all.measure(&fake).unwrap();
    assert_eq!(measured.late, [("net0".to_owned(), "gave no answer".to_owned())]);
    assert_eq!(pairs(&measured, Of::Link), [("a", 0, 0)]);
    tell("", " net0 50 50");
    assert_eq!(pairs(&all.measure(&fake).unwrap(), Of::Link), [("a", 40, 40)]);
    // It went, and what was used of it stays a link's.
    fake.put("container/usage", "resource net0 gone bytes\ncontainer 1.1 threads a net0 55 55\n");
    assert_eq!(pairs(&all.measure(&fake).unwrap(), Of::Link), [("a", 5, 5)]);
    // Late from the beginning: what it tells first was not used in this time.
    let mut all = meter(&fake, "container");
    tell(" late gave no answer", "");
    all.measure(&fake).unwrap();
    tell("", " net0 60 60");
    assert_eq!(pairs(&all.measure(&fake).unwrap(), Of::Link), [("a", 0, 0)]);
    tell("", " net0 67 67");
    assert_eq!(pairs(&all.measure(&fake).unwrap(), Of::Link), [("a", 7, 7)]);
}

#[test]
fn one_and_what_is_in_it() {
    let fake = place();
    fake.node("container/web", true);
    fake.put(
        "container/usage",
        &format!(
            "{HEAD}container 1.1 containers web cpu 0 9\ncontainer 2.1 threads web/a cpu 9 9\n\
             container 3.1 threads webs cpu 1 1\nnonsense\ncontainer 4.1\nresource x\n"
        ),
    );
    let rows = |path| meter(&fake, path).total(&fake).unwrap().rows;
    assert_eq!(rows("container/web").len(), 2);
    assert_eq!(rows("container").len(), 3);
    assert!(Meter::new(&fake, "container/nix").is_err() && Meter::new(&fake, "web").is_err());
}

#[test]
fn tables_fit_and_are_ordered() {
    let fake = place();
    let long = format!("{}/{}", "p".repeat(60), "site1");
    let most = u64::MAX;
    fake.put(
        "container/usage",
        &format!(
            "{HEAD}resource sda disk bytes\nmemory 3.1 {most} {most}\n\
             resource sdb disk bytes late {}\n\
             container 1.1 threads b cpu 2 2 net0 {most} {most} sda {most} {most}\n\
             container 2.1 threads {long} cpu {most} {most}\ncontainer 3.1 threads a cpu 3 3\n",
            "x".repeat(200)
        ),
    );
    let mut all = meter(&fake, "container").total(&fake).unwrap();
    let order = |all: &mut Measured, by| {
        sort(&mut all.rows, by);
        all.rows.iter().map(|row| row.path.chars().next().unwrap()).collect::<String>()
    };
    assert_eq!(order(&mut all, Sort::Name), "abp");
    assert_eq!(order(&mut all, Sort::Cpu), "pab");
    assert_eq!(order(&mut all, Sort::LinksOwn), "bap");
    assert_eq!(crate::top::next(&Sort::MemoryOwn), Sort::Name);
    for seconds in [None, Some(1.0), Some(0.05), Some(3600.0)] {
        for line in draw(&all, seconds, WIDTH) {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }
    let lines = draw(&all, None, WIDTH);
    assert!(lines[0].starts_with("CONTAINER") && lines.iter().any(|l| l.starts_with("…")));
    assert!(lines.last().unwrap().starts_with("late sdb: xxx"));
    for (amount, of, seconds, text) in [
        (0, Of::Cpu, None, "-"),
        (250_000_000, Of::Cpu, Some(1.0), "250ms/s"),
        (1_500_000_000, Of::Cpu, Some(1.0), "1.50cpu"),
        (256_000_000_000, Of::Cpu, Some(1.0), "256cpu"),
        (1_500_000_000, Of::Cpu, None, "1.50s"),
        (999, Of::Link, None, "999B"),
        (12_345, Of::Link, Some(1.0), "12.3kB/s"),
        (999_600, Of::Disk, None, "1.0MB"),
        (123_456_789, Of::Disk, Some(1.0), "123MB/s"),
    ] {
        assert_eq!(short(amount, of, seconds), text);
    }
}

#[test]
fn lines_name_their_units() {
    let fake = place();
    let text = format!("{HEAD}container 1.1 threads a cpu 2 2 net0 5 5\n");
    fake.put("container/usage", &text);
    let all = meter(&fake, "container").total(&fake).unwrap();
    assert_eq!(
        csv_head(),
        "time_unix_s,interval_s,container,holds,cpu_own_ns,cpu_subtree_ns,links_own_bytes,\
         links_subtree_bytes,disks_own_bytes,disks_subtree_bytes,memory_own_bytes,\
         memory_subtree_bytes,late\n"
    );
    let line = csv_line(&all.rows[0], (17.5, Some(1.0)), &["sda", "sdb"]);
    assert_eq!(line, "17.500,1.000,a,threads,2,2,5,5,0,0,,,sda sdb\n");
    let line: Value = serde_json::from_str(&json_line(&all.rows[0], (17.5, None), &[])).unwrap();
    assert_eq!(line["cpu_own_ns"], 2);
    assert_eq!(line["resources"]["net0"]["subtree_bytes"], 5);
    assert_eq!(line["interval_s"], Value::Null);
    assert_eq!(line["memory_own_bytes"], Value::Null, "not 0: it is not known");
}

#[test]
fn memory_is_what_there_is_now() {
    let fake = place();
    let tell = |memory: &str| {
        let text = format!(
            "{HEAD}resource memory link bytes\n\
             container 1.1 containers web cpu 0 70 memory 0 4\n\
             container 2.1 threads web/a cpu 70 70\ncontainer 3.1 threads b\n{memory}"
        );
        fake.put("container/usage", &text);
    };
    let mut all = meter(&fake, "container");
    tell("memory 1.1 0 5000000\nmemory 2.1 3000000 3000000\nmemory 9.9 1 1\nmemory 3.1 x 1\n");
    let first = all.measure(&fake).unwrap();
    assert_eq!(first, all.measure(&fake).unwrap(), "not what came since");
    assert_eq!(
        pairs(&first, Of::Memory)[..2],
        [("web", 0, 5_000_000), ("web/a", 3_000_000, 3_000_000)]
    );
    assert_eq!(pairs(&first, Of::Link)[0], ("web", 0, 0), "a link may be called that");
    let lines = draw(&first, Some(0.5), WIDTH);
    let last = |line: &String| line.split(' ').next_back().unwrap().to_owned();
    assert_eq!(lines.iter().map(last).collect::<Vec<_>>(), ["MEMORY", "5.0MB", "3.0MB", "-"]);
    assert!(lines.iter().all(|line| line.chars().count() <= WIDTH));
    let line = top_line(&first, 1.0, 0.5);
    assert_eq!(line["containers"][0]["memory_subtree_bytes"], 5_000_000, "{line}");
    assert_eq!(line["containers"][2]["memory_subtree_bytes"], Value::Null, "{line}");
    assert!(csv_line(&first.rows[1], (1.0, None), &[]).ends_with(",0,0,3000000,3000000,\n"));
    let mut rows = first.rows.clone();
    sort(&mut rows, Sort::MemoryOwn);
    assert_eq!(rows[0].path, "web/a");
    tell("memory late the cgroups were not read\n");
    let late = all.measure(&fake).unwrap();
    assert_eq!(late.late, [("memory".to_owned(), "the cgroups were not read".to_owned())]);
    assert!(draw(&late, None, WIDTH)[0].ends_with("DISK-OWN"), "nothing known, no column");
}

#[test]
fn what_was_missed_is_not_made_up_for() {
    let now = Instant::now();
    assert_eq!(following(now, 3600.0), now + Duration::from_secs(3600), "the grid is kept");
    let Some(long_ago) = now.checked_sub(Duration::from_secs(2)) else { return };
    assert!(following(long_ago, 0.5) >= now + Duration::from_millis(500), "and begun anew");
}
