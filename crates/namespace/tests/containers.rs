// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of containers: what is listed is found, what is read can be written, and other words are
//! refused with the right number.

use reserv_model::*;
use reserv_namespace::*;

fn new(name: &str, holds: Holds) -> NewContainer {
    let name = Some(Name::new(name).unwrap());
    NewContainer { name, holds, share: Share::of(Weight::DEFAULT), gc: false, maker: 0 }
}

/// web for containers, in it site1 for threads.
fn two() -> (Containers, ContainerId, ContainerId) {
    let mut all = Containers::default();
    let web = all.plan_create(ContainerId::TOP, new("web", Holds::Containers)).unwrap();
    all.apply(&web).unwrap();
    let site1 = all.plan_create(web.id(), new("site1", Holds::Threads)).unwrap();
    all.apply(&site1).unwrap();
    (all, web.id(), site1.id())
}

#[test]
fn what_is_listed_is_found() {
    let (all, web, site1) = two();
    let names =
        |id| list_container(&all, id).unwrap().into_iter().map(|i| i.name).collect::<Vec<_>>();
    assert_eq!(names(ContainerId::TOP), ["new", "mk", "usage", "web"]);
    assert_eq!(
        names(web),
        ["new", "mk", "share", "parent", "gc", "access", "nodes", "usage", "site1"]
    );
    assert_eq!(names(site1), ["share", "members", "parent", "gc", "access", "nodes", "usage"]);
    for id in [ContainerId::TOP, web, site1] {
        let items = list_container(&all, id).unwrap();
        assert!(items.is_sorted_by(|a, b| a.cookie < b.cookie));
        for item in items {
            let found = lookup_in_container(&all, id, item.name.as_bytes()).unwrap();
            assert_eq!(Ino::from(found), item.ino);
            assert_eq!(item.ino.object(), Some(found));
            let Object::Container { id, file } = found else { panic!("{found:?}") };
            let attributes = attributes_in_container(&all, id, file).unwrap();
            assert_eq!(attributes.file_type, item.file_type);
        }
        for name in ["", ".", "site9", "policy", "x y"] {
            let missing = lookup_in_container(&all, id, name.as_bytes()).unwrap_err();
            assert_eq!(missing.errno(), Errno::ENOENT, "{name}");
        }
        assert!(lookup_in_container(&all, id, b"\xff").is_err());
    }
    let stale = ContainerId { index: site1.index, generation: 9 };
    assert_eq!(list_container(&all, stale).unwrap_err().errno(), Errno::ESTALE);
    assert_eq!(lookup_in_container(&all, stale, b"share").unwrap_err().errno(), Errno::ESTALE);
    let members = attributes_in_container(&all, web, ContainerFile::Members).unwrap_err();
    assert_eq!(members.errno(), Errno::ENOENT, "a container for containers has no members");
    // No file of a container can be the name of one.
    for item in
        list_container(&all, web).unwrap().iter().chain(&list_container(&all, site1).unwrap())
    {
        if item.file_type == FileType::Regular {
            let taken = |name| {
                all.plan_create(web, NewContainer { name: Some(name), ..new("x", Holds::Threads) })
            };
            assert!(Name::new(&item.name).and_then(taken).is_err(), "{}", item.name);
        }
    }
}

#[test]
fn what_is_read_can_be_written() {
    use ContainerCommand as C;
    let (mut all, web, site1) = two();
    all.apply(&all.plan_share(site1, "=25%".parse().unwrap()).unwrap()).unwrap();
    let written = |file, id| {
        let text = render_container(&all, id, file).unwrap().unwrap();
        parse_container_write(file, text.as_bytes()).unwrap()
    };
    assert_eq!(written(ContainerFile::Share, site1), C::Share("=25%".parse().unwrap()));
    assert_eq!(written(ContainerFile::Share, web), C::Share(Share::of(Weight::DEFAULT)));
    assert_eq!(written(ContainerFile::Gc, site1), C::Gc(false));
    assert_eq!(written(ContainerFile::Parent, site1), C::Parent(Some("web".parse().unwrap())));
    assert_eq!(written(ContainerFile::Parent, web), C::Parent(None));
    for file in
        [ContainerFile::Nodes, ContainerFile::Usage, ContainerFile::Members, ContainerFile::Access]
    {
        assert_eq!(render_container(&all, site1, file), Ok(None), "the daemon has to look");
    }
    for file in [ContainerFile::Mk, ContainerFile::New, ContainerFile::Dir] {
        assert_eq!(render_container(&all, web, file).unwrap_err().errno(), Errno::EACCES);
    }
}

#[test]
fn other_words_are_refused() {
    use ContainerCommand as C;
    use ContainerFile as F;
    let name = |text: &str| Name::new(text).unwrap();
    let usual = Share::of(Weight::DEFAULT);
    for (file, text, wanted) in [
        (F::Mk, "queue site1", C::Mk(Holds::Threads, name("site1"), usual)),
        (F::Mk, "scheduler web 24\n", C::Mk(Holds::Containers, name("web"), "24".parse().unwrap())),
        (F::Mk, " queue\ta  =5% ", C::Mk(Holds::Threads, name("a"), "=5%".parse().unwrap())),
        (F::Members, "self", C::Bind(Who::CallerProcess)),
        (F::Members, "12", C::Bind(Who::Process(12))),
        (F::Gc, "1", C::Gc(true)),
        (F::Access, "allow uid 5 use", C::Access("allow uid 5 use".parse().unwrap(), false)),
        (
            F::Access,
            "remove uid 5 use tags fall",
            C::Access("remove uid 5 use".parse().unwrap(), true),
        ),
    ] {
        assert_eq!(parse_container_write(file, text.as_bytes()), Ok(wanted), "{text}");
    }
    for (file, text, errno) in [
        (F::Mk, "leaf a", Errno::EINVAL),
        (F::Mk, "queue", Errno::EINVAL),
        (F::Mk, "queue a 1 2 3", Errno::EINVAL),
        (F::Mk, "queue share", Errno::EINVAL),
        (F::Share, "x", Errno::EINVAL),
        (F::Share, "", Errno::EINVAL),
        (F::Gc, "2", Errno::EINVAL),
        (F::Gc, "1 1", Errno::EINVAL),
        (F::Parent, "a//b", Errno::EINVAL),
        (F::Parent, "a b", Errno::EINVAL),
        (F::Members, "0", Errno::EINVAL),
        (F::Members, "tid 5", Errno::EINVAL),
        (F::Members, "1\n2", Errno::EINVAL),
        (F::Access, "allow uid 5", Errno::EINVAL),
        (F::Access, "allow uid 5 use tags fall", Errno::EINVAL),
        (F::Usage, "0", Errno::EACCES),
        (F::Nodes, "0", Errno::EACCES),
        (F::New, "0", Errno::EACCES),
        (F::Dir, "0", Errno::EACCES),
    ] {
        let refused = parse_container_write(file, text.as_bytes()).unwrap_err();
        assert_eq!(refused.errno(), errno, "{text:?}: {refused}");
    }
    assert_eq!(parse_container_write(F::Share, b"\xff").unwrap_err().errno(), Errno::EILSEQ);
    assert_eq!(
        parse_container_write(F::Share, &[b'1'; 5000]).unwrap_err().errno(),
        Errno::EMSGSIZE
    );
}

#[test]
fn tables_are_lines() {
    let resource = Name::new("cpu").unwrap();
    let node = Ok(("web/site1".parse().unwrap(), "24".parse().unwrap()));
    let nodes =
        [Owned { resource: resource.clone(), node }, Owned { resource, node: Err("taken".into()) }];
    assert_eq!(render_nodes(&nodes), "cpu web/site1 24 0\ncpu - taken\n");
    let used = |name: &str, kind, amount| Used { resource: Name::new(name).unwrap(), kind, amount };
    let amount = Ok(Counted { own: 1, subtree: 2 });
    let all = [
        used("cpu", ResourceKind::Cpu, amount.clone()),
        used("sda", ResourceKind::Disk, Err("sda does\nnot answer".into())),
        used("eth0", ResourceKind::Link, amount),
    ];
    let text = "cpu.own_ns 1\ncpu.subtree_ns 2\nsda.late sda does not answer\neth0.own_bytes 1\neth0.subtree_bytes 2\n";
    assert_eq!(render_usage(&all, None), text);
    let memory = Some(Counted { own: 0, subtree: 7 });
    assert_eq!(render_usage(&[], memory), "memory_own_bytes 0\nmemory_subtree_bytes 7\n");
    let id = ContainerId { index: 3, generation: 2 };
    let path: NodePath = "web".parse().unwrap();
    let one = UsedBy { id, holds: Holds::Containers, path, used: Vec::new(), memory };
    let text = "container 3.2 containers web\nmemory 3.2 0 7\n";
    assert_eq!(render_usage_of_all(&[], std::slice::from_ref(&one), None), text);
    let unknown = UsedBy { memory: None, ..one };
    let text = "container 3.2 containers web\nmemory late no end\n";
    assert_eq!(render_usage_of_all(&[], &[unknown], Some("no\nend")), text);
}
