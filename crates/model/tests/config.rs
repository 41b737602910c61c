// SPDX-License-Identifier: MIT OR Apache-2.0
//! Declarative trees: `save` then `up` changes nothing, `up` makes exactly what is written, and
//! what is wrong is refused.

mod common;

use proptest::prelude::*;
use reserv_model::*;

fn new() -> Tree {
    let mut tree = Tree::new(Name::new("cpu").unwrap());
    tree.set_capacity(common::CAPACITY);
    tree
}

fn read(text: &str) -> Result<Config, String> {
    let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
    config.check().map_err(|e| format!("{e} ({})", e.hint))?;
    Ok(config)
}

/// `up` on a tree.
fn up(tree: &mut Tree, wanted: &ResourceConfig, mode: DeleteMode) -> Result<(), Error> {
    let plan = tree.plan(&diff(tree, wanted, mode)?)?;
    tree.commit(&plan)?;
    tree.check()
}

proptest! {
    #![proptest_config(common::config(2))]

    #[test]
    fn saved_and_brought_up_changes_nothing(all in common::steps(80)) {
        let tree = common::grown(&all);
        let config = Config { cpu: Some(to_config(&tree, Driver::Auto)), ..Config::default() };
        let text = toml::to_string(&config).unwrap();
        let again = read(&text).unwrap();
        prop_assert_eq!(&again, &config, "{}", text);
        for mode in [DeleteMode::Refuse, DeleteMode::Drain, DeleteMode::Flush] {
            prop_assert_eq!(diff(&tree, again.cpu.as_ref().unwrap(), mode), Ok(vec![]), "{}", text);
        }
    }

    #[test]
    fn any_tree_becomes_any_other_in_one_plan(from in common::steps(60), to in common::steps(60)) {
        let (mut tree, wanted) = (common::grown(&from), common::grown(&to));
        let wanted = to_config(&wanted, Driver::Full);
        let gone: Vec<_> = tree.iter().filter(|n| n.draining).map(|n| n.id).collect();
        let plan = tree.plan_gone(&gone);
        tree.commit(&plan).unwrap();
        let seq = tree.seq();
        up(&mut tree, &wanted, DeleteMode::Flush).unwrap();
        prop_assert!(tree.seq() <= seq + 1, "one record");
        prop_assert_eq!(to_config(&tree, Driver::Full), wanted.clone());
        prop_assert_eq!(diff(&tree, &wanted, DeleteMode::Flush), Ok(vec![]));
        // From nothing, too; and the order of keys in the text does not matter, for there is only
        // one.
        let mut fresh = new();
        up(&mut fresh, &wanted, DeleteMode::Refuse).unwrap();
        prop_assert_eq!(to_config(&fresh, Driver::Full), wanted);
    }
}

const EXAMPLE: &str = r#"
[cpu]
driver = "full"
policy = "sfq"
[cpu.nodes."web/site1"]
kind = "queue"
class = "rr"
share = "0.24 0"
members_max = 500
gc = true
[cpu.nodes."web"]
kind = "scheduler"
share = 50
cap = "150% burst 20ms"
policy = "sfq"
[cpu.nodes.backup]
kind = "queue"
share = "0"
[[rule]]
match = { uid = "www-data", command = "php*" }
cpu = "web/site1"
[[rule]]
match = { uid = 1000, gid = "users", unit = "backup.service", cgroup = "/system.slice" }
cpu = "backup"
[[rule]]
match = { command = "init" }
cpu = "q0"
"#;

#[test]
fn an_example() {
    let config = read(EXAMPLE).unwrap();
    let cpu = config.cpu.as_ref().unwrap();
    assert_eq!(cpu.driver, Driver::Full);
    let mut tree = new();
    up(&mut tree, cpu, DeleteMode::Refuse).unwrap();
    let at = |p: &str| tree.get(tree.resolve(&p.parse().unwrap()).unwrap()).unwrap();
    assert_eq!(at("web").weight.milli(), 50_000);
    assert_eq!(at("web").cap, Some(Cap { rate_ns_per_s: 1_500_000_000, burst_ns: 20_000_000 }));
    let site = at("web/site1");
    assert_eq!(
        (site.kind, site.weight.milli(), site.members_max, site.gc),
        (Kind::Queue(Class::Rr), 240, 500, true)
    );
    assert_eq!(at("backup").weight, Weight::BACKGROUND);
    assert_eq!(at("q0").weight, Weight::DEFAULT, "left out: as it starts");
    assert_eq!(config.rules.len(), 3);
    assert_eq!(read(&toml::to_string(&config).unwrap()), Ok(config));
}

#[test]
fn the_text_of_save_is_pinned() {
    let mut tree = new();
    up(&mut tree, read(EXAMPLE).unwrap().cpu.as_ref().unwrap(), DeleteMode::Refuse).unwrap();
    let config = Config { cpu: Some(to_config(&tree, Driver::Auto)), ..Config::default() };
    let wanted = r#"[cpu]
driver = "auto"
policy = "sfq"

[cpu.nodes.backup]
kind = "queue"
share = "0"
class = "ts"

[cpu.nodes.q0]
kind = "queue"
share = "100"
class = "ts"

[cpu.nodes.web]
kind = "scheduler"
share = "50"
cap = "1.5cpu burst 20ms"
policy = "sfq"

[cpu.nodes."web/site1"]
kind = "queue"
share = "0.24"
class = "rr"
members_max = 500
gc = true
"#;
    assert_eq!(toml::to_string(&config).unwrap(), wanted);
}

#[test]
fn a_change_is_only_what_changed() {
    let mut tree = new();
    let mut wanted = read(EXAMPLE).unwrap().cpu.unwrap();
    up(&mut tree, &wanted, DeleteMode::Refuse).unwrap();
    let site: NodePath = "web/site1".parse().unwrap();
    wanted.nodes.get_mut(&site).unwrap().class = Some(Class::Fifo);
    wanted.nodes.remove(&"backup".parse().unwrap());
    let backup = tree.resolve(&"backup".parse().unwrap()).unwrap();
    let requests = diff(&tree, &wanted, DeleteMode::Drain).unwrap();
    assert_eq!(
        requests,
        [
            Request::Delete { node: backup.into(), mode: DeleteMode::Drain },
            Request::SetClass { node: site.into(), class: Class::Fifo },
        ]
    );
    // A queue that becomes a scheduler is made anew, and its place must be free for that.
    wanted.nodes.insert("backup".parse().unwrap(), NodeConfig::new(NodeKind::Scheduler));
    let requests = diff(&tree, &wanted, DeleteMode::Drain).unwrap();
    assert_eq!(tree.plan(&requests).unwrap_err().kind, ErrorKind::Exists);
    up(&mut tree, &wanted, DeleteMode::Flush).unwrap();
    assert!(tree.get(backup).is_none());
}

#[test]
fn draining_queues_do_not_count() {
    let mut tree = new();
    let mut wanted = read(EXAMPLE).unwrap().cpu.unwrap();
    up(&mut tree, &wanted, DeleteMode::Refuse).unwrap();
    let path: NodePath = "backup".parse().unwrap();
    let plan = tree
        .plan(&[Request::Delete { node: path.clone().into(), mode: DeleteMode::Drain }])
        .unwrap();
    tree.commit(&plan).unwrap();
    assert_eq!(diff(&tree, &wanted, DeleteMode::Flush).unwrap_err().errno(), Errno::EBUSY);
    wanted.nodes.remove(&path);
    assert_eq!(diff(&tree, &wanted, DeleteMode::Flush), Ok(vec![]), "it goes by itself");
    let asked = diff_as_asked(&tree, &wanted, DeleteMode::Flush).unwrap();
    assert!(
        matches!(asked[..], [Request::Delete { mode: DeleteMode::Flush, .. }]),
        "who asks for it has it now: {asked:?}"
    );
    assert_eq!(diff_as_asked(&tree, &wanted, DeleteMode::Drain), Ok(vec![]));
    assert!(!to_config(&tree, Driver::Auto).nodes.contains_key(&path));
    // A scheduler cannot go before what drains in it.
    let site: NodePath = "web/site1".parse().unwrap();
    let plan =
        tree.plan(&[Request::Delete { node: site.into(), mode: DeleteMode::Drain }]).unwrap();
    tree.commit(&plan).unwrap();
    let nothing = ResourceConfig::default();
    for mode in [DeleteMode::Refuse, DeleteMode::Drain] {
        let error = diff(&tree, &nothing, mode).unwrap_err();
        assert!(
            error.errno() == Errno::EBUSY && error.context.contains("cpu/web/site1"),
            "{error}"
        );
    }
    let asked = diff_as_asked(&tree, &nothing, DeleteMode::Flush).unwrap();
    let plan = tree.plan(&asked).unwrap();
    let mut flushed = tree.clone();
    flushed.commit(&plan).unwrap();
    assert_eq!(flushed.len(), 2, "root and q0");
    up(&mut tree, &nothing, DeleteMode::Flush).unwrap();
    assert_eq!(tree.len(), 3, "root, q0, and backup that drains");
}

#[test]
fn wrong_configurations() {
    let node = |lines: &str| format!("[cpu.nodes.a]\n{lines}");
    let rule = |lines: &str| format!("{}\n[[rule]]\n{lines}", node("kind = \"queue\""));
    let packets = |conditions: &str| {
        format!(
            "[count.e0]\non = \"link:e0\"\n[count.e0.nodes.web]\nkind = \"queue\"\n[[rule]]\nmatch = {{ {conditions} }}\ne0 = \"web\""
        )
    };
    let cases = [
        ("x = 1".to_owned(), "unknown field `x`"),
        ("[cpu]\ndriver = \"fast\"".to_owned(), "fast"),
        ("[cpu]\nnode = {}".to_owned(), "unknown field `node`"),
        ("[cpu]\npolicy = \"wf3q\"".to_owned(), "wf3q"),
        ("[disk]".to_owned(), "disk"),
        (node("share = 1"), "missing field `kind`"),
        (node("kind = \"leaf\""), "leaf"),
        (node("kind = \"queue\"\nweight = 3"), "unknown field `weight`"),
        (node("kind = \"queue\"\nshare = \"heavy\""), "\"heavy\" is not a weight"),
        (node("kind = \"queue\"\nshare = -1"), "-1"),
        (node("kind = \"queue\"\nshare = 0.5"), "floating point"),
        (node("kind = \"queue\"\nshare = 1000001"), "too large"),
        (node("kind = \"queue\"\nshare = \"=125%\""), "less than all"),
        (node("kind = \"queue\"\ntune = \"lag 1ms\""), "no tunable here"),
        (node("kind = \"queue\"\ntune = \"quantum 1\""), "no unit"),
        ("[cpu]\ntune = \"turn 1s\"".to_owned(), "no tunable here"),
        ("[cpu]\npersonality = \"linux\"".to_owned(), "linux"),
        (node("kind = \"queue\"\ncap = 2"), "no unit"),
        (node("kind = \"queue\"\ncap = \"0\""), "a cap of 0"),
        (node("kind = \"queue\"\nclass = \"scam\""), "scam"),
        (node("kind = \"queue\"\nmembers_max = -1"), "-1"),
        (node("kind = \"queue\"\ngc = 1"), "boolean"),
        (node("kind = \"queue\"\npolicy = \"sfq\""), "no policy"),
        (node("kind = \"scheduler\"\nclass = \"ts\""), "no class"),
        (node("kind = \"scheduler\"\nmembers_max = 1"), "no members"),
        ("[cpu.nodes.\"a/b\"]\nkind = \"queue\"".to_owned(), "add [cpu.nodes.\"a\"]"),
        (node("kind = \"queue\"\n[cpu.nodes.\"a/b\"]\nkind = \"queue\""), "a is a queue"),
        ("[cpu.nodes.\"q0/b\"]\nkind = \"queue\"".to_owned(), "q0 is a queue"),
        ("[cpu.nodes.q0]\nkind = \"scheduler\"".to_owned(), "always a queue"),
        ("[cpu.nodes.\"\"]\nkind = \"scheduler\"".to_owned(), "itself"),
        ("[cpu.nodes.share]\nkind = \"queue\"".to_owned(), "share"),
        ("[cpu.nodes.\"a//b\"]\nkind = \"queue\"".to_owned(), "empty name"),
        (rule("cpu = \"a\""), "missing field `match`"),
        (rule("match = {}\ncpu = \"a\""), "without a condition"),
        (rule("match = { uid = 1 }"), "names no queue"),
        (rule("match = { user = 1 }\ncpu = \"a\""), "unknown field `user`"),
        (rule("match = { uid = -1 }\ncpu = \"a\""), "a number or a name"),
        (rule("match = { unit = \"\" }\ncpu = \"a\""), "empty pattern"),
        (rule("match = { cgroup = \"x\" }\ncpu = \"a\""), "absolute"),
        (rule("match = { uid = 1 }\ncpu = \"b\""), "no queue"),
        (rule("match = { uid = 1 }\ncpu = \"\""), "no queue"),
        (rule("match = { uid = 1 }\ncpu = \"a\"\nnet = 7"), "invalid type"),
        (packets("port = 0"), "\"0\" is not a port"),
        (packets("port = 65536"), "\"65536\" is not a port"),
        (packets("port = -1"), "\"-1\" is not a port"),
        (packets("port = 4.5"), "a port or a range of ports"),
        (packets("port = \"https\""), "\"https\" is not a port"),
        (packets("local_port = \"90-80\""), "\"90-80\" ends before"),
        (packets("remote = \"10.0.0.1/8\""), "\"10.0.0.1/8\" has bits beyond its /8"),
        (packets("remote = \"10.0.0.0/40\""), "\"40\" is not a length"),
        (packets("remote = \"example\""), "\"example\" is not an address"),
        (packets("remote = 10"), "\"10\" is not an address"),
        (packets("protocol = \"tpc\""), "\"tpc\" is not a protocol"),
        (packets("protocol = 256"), "\"256\" is not a protocol"),
        (packets("ports = 1"), "unknown field `ports`"),
        (packets("port = 443, uid = 33"), "rule 1: uid is of processes and port of packets"),
        (packets("local_port = 1, protocol = \"icmp\""), "rule 1: local_port: icmp has no ports"),
        (packets("port = 443").replace("e0 = \"web\"", "e0 = \"nowhere\""), "no queue"),
        (packets("port = 443").replace("e0 = \"web\"", "cpu = \"q0\""), "cpu is no link"),
        (packets("port = 443").replace("link:", "net:"), "e0 is no link"),
        (
            packets("port = 443")
                + &"\n[[rule]]\nmatch = { protocol = 6 }\ne0 = \"web\"".repeat(64),
            "more than 64",
        ),
    ];
    for (text, holds) in cases {
        let error = read(&text).expect_err(&text);
        assert!(error.contains(holds), "{text}\n→ {error}");
    }
    // What only the tree can refuse.
    for text in [
        node("kind = \"queue\"\nshare = \"1 1cpu\""),
        "[cpu.nodes.q0]\nkind = \"queue\"\nshare = 0".into(),
    ] {
        let wanted = read(&text).unwrap().cpu.unwrap();
        let mut tree = new();
        let before = tree.clone();
        assert!(up(&mut tree, &wanted, DeleteMode::Flush).is_err(), "{text}");
        assert_eq!(tree, before);
    }
}

#[test]
fn rules_about_packets() {
    let text = "[count.e0]\non = \"link:e0\"\n[count.e0.nodes.web]\nkind = \"queue\"\n";
    let rule = "[[rule]]\nmatch = { port = 443, local_port = \"8000-8999\", remote = \"2001:db8::/32\", protocol = \"tcp\" }\ne0 = \"web\"\n";
    let config = read(&format!("{text}{rule}")).unwrap();
    assert_eq!(
        read(&toml::to_string(&config).unwrap()).as_ref(),
        Ok(&config),
        "save and read again"
    );
    let packets = config.rules[0].conditions.packets().unwrap();
    assert_eq!((packets.ports.first(), packets.ports.last()), (443, 443));
    assert_eq!((packets.local_ports.first(), packets.local_ports.last()), (8000, 8999));
    assert_eq!(packets.protocol.map(Protocol::number), Some(6));
    assert_eq!(packets.remote.map(|r| r.to_string()).as_deref(), Some("2001:db8::/32"));
    assert!(
        !config.rules[0].conditions.matches(&Subject { cgroup: b"/", ..Subject::default() }),
        "no process"
    );
    let many = "[[rule]]\nmatch = { protocol = 6 }\ne0 = \"web\"\n".repeat(64);
    assert_eq!(
        read(&format!("{text}{many}")).map(|c| c.rules.len()),
        Ok(64),
        "as many as there can be"
    );
    let whose = read("[[rule]]\nmatch = { uid = 1 }\ncpu = \"q0\"").unwrap();
    assert_eq!(whose.rules[0].conditions.packets(), None);
}

fn written(text: &str) -> Result<Config, String> {
    let written: Written = toml::from_str(text).map_err(|e| e.to_string())?;
    let config = Config::try_from(written).map_err(|e| e.to_string())?;
    config.check().map_err(|e| e.to_string())?;
    Ok(config)
}

#[test]
fn bits_and_bytes_of_one_amount_are_no_difference() {
    let of = |share: &str, cap: &str| {
        let text = format!(
            "[link.e0]\nrate = \"100mbit\"\n[link.e0.nodes.a]\nkind = \"queue\"\nshare = \"{share}\"\ncap = \"{cap}\"\n"
        );
        written(&text).unwrap().count.into_values().next().unwrap()
    };
    let on = of("300", "none").on.unwrap();
    let mut tree = Tree::new(Name::new("e0").unwrap());
    tree.set_resource(on.kind());
    tree.set_capacity(on.promised());
    up(&mut tree, &of("300 2MB/s", "4MB/s"), DeleteMode::Refuse).unwrap();
    let asked = |share, cap| diff(&tree, &of(share, cap), DeleteMode::Refuse).unwrap().len();
    assert_eq!(asked("300 16mbit", "32mbit"), 0);
    assert_eq!((asked("300 16mbit", "32.1mbit"), asked("300 16.1mbit", "32mbit")), (1, 1));
    assert_eq!((asked("400 16mbit", "32mbit"), asked("300 16mbit", "none")), (1, 1));
}

#[test]
fn links_and_disks_have_tables_of_their_own() {
    let node = |table: &str| format!("[{table}.nodes.web]\nkind = \"queue\"\nshare = \"3\"\n");
    for (old, new) in [
        ("link:x", "[link.x]\n"),
        ("link:eth0.7@100mbit", "[link.x]\ninterface = \"eth0.7\"\nrate = \"100mbit\"\n"),
        ("link:x@3MB/stock", "[link.x]\nrate = \"3MB/s\"\ndriver = \"stock\"\n"),
        (
            "link+tcx:x@1mbit/full",
            "[link.x]\nrate = \"1mbit\"\ndriver = \"full\"\nreceive = \"tcx\"\n",
        ),
        ("link+xdp+in=web/site1:x", "[link.x]\nreceive = \"xdp\"\nreceive_in = \"web/site1\"\n"),
        ("disk:/dev/vdb", "[disk.x]\npath = \"/dev/vdb\"\n"),
        (
            "disk+4@3MB/flash/fuse/full:/srv/a b",
            "[disk.x]\npath = \"/srv/a b\"\ndepth = 4\nfloor = \"3MB/s\"\nfront = \"fuse\"\nmodel = \"flash\"\ndriver = \"full\"\n",
        ),
        ("disk+1/stock:/dev/vdb", "[disk.x]\npath = \"/dev/vdb\"\ndepth = 1\ndriver = \"stock\"\n"),
    ] {
        let table = if old.starts_with("link") { "link.x" } else { "disk.x" };
        let more = "policy = \"sfq\"\ntune = \"\"\naccess = [\"allow everyone read\"]\n";
        let was = format!("[count.x]\non = \"{old}\"\n{more}{}", node("count.x"));
        let config = written(&was).unwrap();
        assert_eq!(written(&format!("{new}{more}{}", node(table))).as_ref(), Ok(&config), "{old}");
        let text = toml::to_string(&Written::from(&config)).unwrap();
        assert!(text.contains(&format!("[{table}]\n")) && !text.contains("count"), "{text}");
        assert_eq!(written(&text), Ok(config), "{text}");
    }
    let counted = written("[count.c]\non = \"file:/srv\"\n").unwrap();
    assert_eq!(toml::to_string(&Written::from(&counted)), toml::to_string(&counted));
    for (bad, why) in [
        ("[link.x]\nrate = \"fast\"\n", "fast"),
        ("[link.x]\non = \"link:x\"\n", "on"),
        ("[link.x]\ninterface = \"a@1mbit\"\n", "[link.x]"),
        ("[link.x]\n[link.x.nodes.\"a/b\"]\nkind = \"queue\"\n", "parent is missing"),
        ("[link.x]\n[count.x]\non = \"net:x\"\n", "too"),
        ("[link.x]\n[disk.x]\npath = \"/dev/vdb\"\n", "too"),
        ("[disk.x]\n", "path"),
        ("[disk.x]\npath = \"vdb\"\n", "does not start with /"),
        ("[disk.x]\npath = \"/d\"\ndepth = 0\n", "1 to 256"),
        ("[disk.x]\npath = \"/d\"\ndepth = 257\n", "1 to 256"),
        ("[disk.x]\npath = \"/d\"\nfloor = \"1MB/s\"\ndriver = \"stock\"\n", "no floor"),
        ("[disk.x]\npath = \"/d\"\nfront = \"nbd\"\n", "nbd"),
    ] {
        let said = written(bad).unwrap_err();
        assert!(said.contains(why), "{bad} {said}");
    }
}

#[test]
fn rules_match_by_all_their_conditions() {
    let rules = read(EXAMPLE).unwrap().rules;
    let www = Subject {
        uid: 33,
        user: Some("www-data"),
        command: b"php-fpm8.2",
        cgroup: b"/",
        ..Subject::default()
    };
    let first = |s: &Subject<'_>| {
        Rule::first(&rules, s).and_then(|r| r.place("cpu")).map(ToString::to_string)
    };
    assert_eq!(first(&www).as_deref(), Some("web/site1"));
    assert_eq!(first(&Subject { command: b"bash", ..www }), None);
    assert_eq!(first(&Subject { user: None, ..www }), None);
    let backup = Subject {
        uid: 1000,
        user: Some("anna"),
        gid: 100,
        group: Some("users"),
        unit: Some(b"backup.service"),
        cgroup: b"/system.slice/backup.service",
        command: b"tar",
        ..Subject::default()
    };
    assert_eq!(first(&backup).as_deref(), Some("backup"));
    for other in [
        Subject { uid: 1001, ..backup },
        Subject { group: None, ..backup },
        Subject { unit: None, ..backup },
        Subject { cgroup: b"/system.slice2/backup.service", ..backup },
        Subject { cgroup: b"/user.slice", ..backup },
    ] {
        assert_eq!(first(&other), None, "{other:?}");
    }
}

#[test]
fn a_queue_for_each_user() {
    let text =
        "[[rule]]\nmatch = { group = \"customers\" }\ncpu = \"users/{user}\"\nd = \"{user}\"";
    let rules = read(text).unwrap().rules;
    let others = [(7, None), (1000, Some("customers".to_owned()))];
    let anna = Subject { uid: 1000, user: Some("anna"), groups: &others, ..Subject::default() };
    let queue = |s: &Subject<'_>, resource: &str| {
        let place = Rule::first(&rules, s)?.place(resource)?;
        place.of(s.user).map(|path| path.to_string())
    };
    assert_eq!(queue(&anna, "cpu").as_deref(), Some("users/anna"));
    assert_eq!(queue(&anna, "d").as_deref(), Some("anna"));
    let own = Subject { groups: &[], group: Some("customers"), ..anna };
    assert_eq!(queue(&own, "cpu").as_deref(), Some("users/anna"), "the effective group is one too");
    for name in ["a user", "domain\\\\anna", "shares", "..", "ä", ""] {
        assert_eq!(queue(&Subject { user: Some(name), ..anna }, "cpu"), None, "{name:?}");
    }
    assert_eq!(queue(&Subject { user: None, ..anna }, "cpu"), None, "numbers are for the taking");
    assert_eq!(queue(&Subject { uid: 0, user: Some("root"), ..anna }, "cpu"), None, "a login");
    assert_eq!(queue(&Subject { groups: &others[..1], ..anna }, "cpu"), None);
    assert_eq!(read(&toml::to_string(&read(text).unwrap()).unwrap()).unwrap().rules, rules);

    let of_queue = |kind, gc| {
        let node = NodeConfig { gc, ..NodeConfig::new(kind) };
        move |path: &str| Rule::any_makes(&rules, "cpu", (&path.parse().unwrap(), &node))
    };
    let made = of_queue.clone()(NodeKind::Queue, true);
    assert_eq!(
        ["users/anna", "users", "users/a/b", "anna"].map(&made),
        [true, false, false, false]
    );
    assert!(!of_queue.clone()(NodeKind::Queue, false)("users/anna"), "somebody's own");
    assert!(!of_queue(NodeKind::Scheduler, true)("users/anna"));
}

#[test]
fn patterns() {
    let fits = |pattern: &str, text: &str| {
        let conditions = Match { command: Some(pattern.into()), ..Match::default() };
        conditions.matches(&Subject { command: text.as_bytes(), ..Subject::default() })
    };
    for (pattern, text) in [
        ("ffmpeg", "ffmpeg"),
        ("*", ""),
        ("*", "x"),
        ("php*", "php"),
        ("*fpm", "php-fpm"),
        ("a*b*c", "aXbYbZc"),
        ("?", "ä"),
        ("**", ""),
        ("a?c", "abc"),
        ("*.service", "a.service.service"),
    ] {
        assert!(fits(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [
        ("ffmpeg", "ffmpeg2"),
        ("ffmpeg", ""),
        ("?", ""),
        ("a*b", "a"),
        ("a*b*c", "acb"),
        ("php*", "xphp"),
        ("A", "a"),
    ] {
        assert!(!fits(pattern, text), "{pattern} {text}");
    }
    // A pattern that is slow for a matcher that recurses.
    assert!(!fits(&"*a".repeat(200), &"a".repeat(199)));
    assert!(fits(&"*a".repeat(200), &"a".repeat(5000)));
    assert!(!Match::default().matches(&Subject::default()), "no condition matches nobody");
    let below = |top: &str, path: &str| {
        let conditions = Match { cgroup: Some(top.into()), ..Match::default() };
        conditions.matches(&Subject { cgroup: path.as_bytes(), ..Subject::default() })
    };
    assert!(
        below("/", "/a")
            && below("/a", "/a")
            && below("/a/", "/a/b")
            && !below("/a", "/ab")
            && !below("/a/b", "/a")
    );
    let by_name = Match { uid: Some(Principal::Name("33".into())), ..Match::default() };
    assert!(by_name.matches(&Subject { uid: 33, ..Subject::default() }));
}

/// Whoever names a process chooses any bytes.
#[test]
fn names_need_not_be_text() {
    let of = |conditions: Match, subject: Subject<'_>| conditions.matches(&subject);
    let command = |pattern: &str, name: &[u8]| {
        let conditions = Match { command: Some(pattern.into()), ..Match::default() };
        of(conditions, Subject { command: name, ..Subject::default() })
    };
    assert!(command("*", b"\xff\xfe") && command("??", b"\xff\xfe") && command("php*", b"php\xff"));
    assert!(
        command("?", "ä".as_bytes())
            && command("a?c", b"a\xc3c")
            && command("*c", b"\xc3\xa4\xffc")
    );
    assert!(
        !command("?", b"\xff\xfe") && !command("\u{fffd}", b"\xff") && !command("php", b"php\xff")
    );
    let unit = Match { unit: Some("user@*.service".into()), ..Match::default() };
    assert!(of(unit, Subject { unit: Some(b"user@\xff.service"), ..Subject::default() }));
    let cgroup = Match { cgroup: Some("/user.slice".into()), ..Match::default() };
    assert!(of(cgroup.clone(), Subject { cgroup: b"/user.slice/\xff\xfe", ..Subject::default() }));
    assert!(!of(cgroup, Subject { cgroup: b"/user.slice\xff", ..Subject::default() }));
}

/// The words of containers' nodes are their resource's, and so are those of the nodes beside them.
#[test]
fn containers_nodes_have_the_words_of_their_resource() {
    let of = |kind, text: &str, tune: &str| {
        let config = read(text).unwrap();
        let wanted = config.count.values().next().unwrap();
        let (first, later) = split(wanted.clone(), &config.containers);
        assert_eq!((first.nodes.len(), later.len()), (1, 1));
        let mut tree = Tree::new(Name::new("net").unwrap());
        tree.set_resource(kind);
        up(&mut tree, &first, DeleteMode::Refuse).unwrap();
        let nodes = nodes_of(&config.containers).unwrap();
        let nodes: Vec<_> = nodes.into_iter().map(|(_, request)| request).collect();
        let plan = tree.plan(&nodes).unwrap();
        tree.commit(&plan).unwrap();
        let plan = tree.plan(&requests_of(&tree, &later, DeleteMode::Refuse).unwrap()).unwrap();
        tree.commit(&plan).unwrap();
        for node in ["a", "web"] {
            let id = tree.resolve(&node.parse().unwrap()).unwrap();
            assert_eq!(tune_text(&tree.node(id).unwrap().tune), tune, "{node}");
        }
    };
    let nodes = |word: &str| {
        format!(
            "[container.web]\n[count.net.nodes.a]\nkind = \"queue\"\n{word}\n\
             [count.net.nodes.web]\nkind = \"queue\"\n{word}\n[count.net]\n"
        )
    };
    let link = nodes("tune = \"receive 1000/s\"") + "on = \"link+tcx:eth0@10mbit\"\n";
    of(ResourceKind::Link, &link, "receive 1000/s");
    let disk = nodes("class = \"scan-edf\"\ntune = \"deadline 20ms\"") + "on = \"disk:/dev/vdb\"\n";
    of(ResourceKind::Disk, &disk, "deadline 20ms");
}
