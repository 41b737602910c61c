# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rows of the round trip (round_trip.py): every word of a configuration, as reserv(5) has
it."""

# A feature, the configuration that has it, and what `save` must say of it. LINK is an interface
# that is there.
EVERY_DRIVER = (
    ("nodes and weights",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = 60\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "0.5"\n',
     ('"0.5"', '"60"')),
    ("fixed shares",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "=25%"\n',
     ('"=25%"',)),
    ("a minimum",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 100ms/s"\n',
     ('"300 100ms/s"',)),
    ("minimums below a minimum",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = "300 200ms/s"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "1 100ms/s"\n'
     '[cpu.nodes."s/b"]\n'
     'kind = "queue"\n'
     'share = "1 100ms/s"\n',
     ('"1 100ms/s"', '"300 200ms/s"')),
    ("a cap",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "1.5cpu"\n',
     ('"1.5cpu"',)),
    ("a limit",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 17\n',
     ("members_max = 17",)),
    ("collection",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'gc = true\n',
     ("gc = true",)),
    ("background, a cap with its burst, and a share of q0",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = 0\n'
     'cap = "50ms/s burst 20ms"\n'
     '[cpu.nodes.q0]\n'
     'kind = "queue"\n'
     'share = "40 10ms/s"\n',
     ('"0"', '"50ms/s burst 20ms"', '"40 10ms/s"')),
    ("rights",
     '[cpu]\n'
     'access = ["allow everyone read"]\n'
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'access = ["allow uid 1000 use,create quota 8"]\n',
     ("allow everyone read", "allow uid 1000 use,create quota 8")),
    ("rules",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { command = "no-such-*" }\n'
     'cpu = "a"\n'
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'cpu = "a"\n',
     ("no-such-*", "4711")),
    ("the memory of limits",
     'backlog = "64MiB"\n',
     ("64MiB",)),
    ("rules by every condition",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { uid = 4711, gid = 4712, unit = "no-such*.service", command = "no-such-?" }\n'
     'cpu = "a"\n'
     '[[rule]]\n'
     'match = { cgroup = "/no/such/slice" }\n'
     'cpu = "a"\n',
     ("4711", "4712", "no-such*.service", "no-such-?", "/no/such/slice")),
    ("a queue for each user",
     '[cpu.nodes.users]\n'
     'kind = "scheduler"\n'
     '[[rule]]\n'
     'match = { group = "games" }\n'
     'cpu = "users/{user}"\n',
     ('group = "games"', '"users/{user}"')),
    ("a rule's container",
     '[container.web]\n'
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'container = "web"\n',
     ('container = "web"',)),
    ("words that are what they would be",
     '[cpu]\n'
     'driver = "DRIVER"\n'
     'personality = "default"\n'
     'policy = "sfq"\n'
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "sfq"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'class = "ts"\n',
     ('policy = "sfq"', 'class = "ts"')),
    ("what is counted on an interface",
     '[count.c]\n'
     'on = "net:LINK"\n'
     'personality = "qlinux"\n'
     'policy = "sfq"\n'
     'tune = "quantum 3ms"\n'
     'access = ["allow everyone read"]\n'
     '[count.c.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = 7\n'
     'policy = "sfq"\n'
     'gc = true\n'
     '[count.c.nodes."s/a"]\n'
     'kind = "queue"\n'
     'class = "sfq"\n'
     'access = ["allow uid 1000 use,create quota 8"]\n',
     ("net:LINK", "qlinux", "quantum 3ms", '"7"', "allow everyone read", "allow uid 1000 use,create quota 8",
      "gc = true")),
    ("containers",
     '[container.web]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     'gc = true\n'
     '[container."web/site1"]\n'
     'share = "24"\n'
     'gc = true\n'
     'access = ["allow uid 1000 use"]\n',
     ('[container."web/site1"]', "gc = true", "allow uid 1000 use")),
    ("what is said of containers' nodes, and what is below them",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "7"\n'
     'cap = "500ms/s"\n'
     'members_max = 12\n'
     '[cpu.nodes."web/by-hand"]\n'
     'kind = "queue"\n'
     '[container.web]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     '[container."web/site1"]\n'
     'share = "24"\n'
     '[container."web/site2"]\n'
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'cpu = "web/site2"\n',
     ('"24"', '"7"', '"500ms/s"', "members_max = 12", '[cpu.nodes."web/by-hand"]', "web/site2")),
)
# The same of links: SOURCE is a link of 100mbit, LINK its interface.
EVERY_LINK = (
    ("a link's table",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'policy = "sfq"\n'
     'access = ["allow everyone read"]\n'
     '[link.net.nodes.web]\n'
     'kind = "queue"\n'
     'share = "300 20mbit"\n',
     ("[link.net]", 'interface = "LINK"', 'rate = "100mbit"', "allow everyone read",
      "[link.net.nodes.web]")),
    ("a link's table by its interface",
     '[link.LINK]\n'
     'rate = "3MB/s"\n'
     'driver = "DRIVER"\n',
     ("[link.LINK]", 'rate = "3MB/s"')),
    ("a link's minimum and cap",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.web]\n'
     'kind = "queue"\n'
     'share = "300 20mbit"\n'
     'cap = "50mbit"\n',
     ("[link.net.nodes.web]", '"300 20mbit"', '"50mbit"')),
    ("minimums below a link's",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = "300 40mbit"\n'
     '[count.net.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "=50% 10mbit"\n',
     ('"=50% 10mbit"',)),
    ("a link's limits",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 30\n',
     ("members_max = 30",)),
    ("a link's queues that are collected, and rights at them",
     '[link.LINK]\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'personality = "containers"\n'
     '[link.LINK.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "sfq"\n'
     'gc = true\n'
     '[link.LINK.nodes."s/a"]\n'
     'kind = "queue"\n'
     'class = "fifo"\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n',
     ("personality", "gc = true", "allow uid 1000 use,create quota 8")),
    ("what comes in by a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'receive = "tcx"\n',
     ('receive = "tcx"',)),
    ("a limit in bytes",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'bytes_max = 300000\n'
     '[count.net.nodes.b]\n'
     'kind = "queue"\n'
     'bytes_max = "128KiB"\n',
     ('bytes_max = "300kB"', 'bytes_max = "128KiB"')),
    ("rules about packets",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }\n'
     'net = "a"\n'
     '[[rule]]\n'
     'match = { protocol = 17, port = "8000-8999", remote = "2001:db8::/32" }\n'
     'net = "a"\n',
     ("10.0.0.0/8", "443", "8000-8999", "2001:db8::/32")),
    ("rules about who comes",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     '[[rule]]\n'
     'match = { from = "192.0.2.0/24", protocol = "tcp", local_port = 443 }\n'
     'net = "a"\n'
     'receive = "100/s"\n'
     'receive-burst = 9\n'
     '[[rule]]\n'
     'match = { from = "not 10.0.0.0/8" }\n'
     'receive = "nothing"\n'
     '[[rule]]\n'
     'match = { from = "any", local_port = "8000-8999" }\n'
     'net = "a"\n',
     ("192.0.2.0/24", "100/s", 'receive-burst = "9"', "not 10.0.0.0/8", '"nothing"', '"any"')),
)
# What the stock driver has not.
ALL_POLICIES = (
    ("personality, policies and tunables",
     '[cpu]\n'
     'personality = "rtss98"\n'
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "mtrls"\n'
     'tune = "turn 20ms"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'class = "rr"\n'
     '[cpu.nodes.e]\n'
     'kind = "queue"\n'
     'class = "edf"\n',
     ('"mtrls"', "turn 20ms", '"rr"', '"edf"')),
    ("who processes what comes in by a link",
     '[cpu.nodes.in]\n'
     'kind = "queue"\n'
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'receive_in = "in"\n',
     ('receive_in = "in"',)),
    ("policies and classes of a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'policy = "wf2q+"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'class = "drr"\n',
     ('policy = "wf2q+"', '"drr"')),
    ("tunables of the CPU's root",
     '[cpu]\n'
     'tune = "quantum 3ms"\n',
     ('tune = "quantum 3ms"',)),
    ("a disk's words",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "full"\n'
     'depth = 4\n'
     'floor = "3MB/s"\n'
     'model = "flash"\n'
     'personality = "containers"\n'
     'access = ["allow everyone read"]\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 1MB/s"\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n',
     ("[disk.d]", 'driver = "full"', "depth = 4", 'floor = "3MB/s"', 'model = "flash"',
      "personality", "allow everyone read", '"300 1MB/s"', "gc = true",
      "allow uid 1000 use,create quota 8")),
    ("policies, classes and tunables of a disk",
     '[disk.d]\n'
     'path = "DISK"\n'
     'policy = "yfq"\n'
     'tune = "anticipate 3ms"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'class = "scan-edf"\n'
     'tune = "deadline 20ms"\n'
     '[disk.d.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n',
     ('policy = "yfq"', "anticipate 3ms", '"scan-edf"', "deadline 20ms", '"wf2q+"')),
)
# What needs an entrance that is one.
ENTRANCE = (
    ("what comes in by a queue of a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'receive = "tcx"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'tune = "receive 1000/s receive-burst 16"\n',
     ('receive = "tcx"', "receive 1000/s", "receive-burst 16")),
)
# What needs a disk that is scheduled.
FULL_DISK = (
    ("a cap of a disk's queue",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "full"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "2MB/s"\n',
     ('cap = "2MB/s"',)),
)
# Of the stock driver's disk: BLOCK is a block device that BFQ can have.
STOCK_DISK = (
    ("a disk of the stock driver",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'depth = 1\n'
     'personality = "containers"\n'
     'policy = "sfq"\n'
     'access = ["allow everyone read"]\n'
     '[disk.d.nodes.s]\n'
     'kind = "scheduler"\n'
     'share = 60\n'
     'policy = "sfq"\n'
     '[disk.d.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "=25%"\n'
     'class = "fifo"\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n'
     '[disk.d.nodes."s/b"]\n'
     'kind = "queue"\n'
     'share = 0\n',
     ("[disk.d]", 'path = "BLOCK"', 'driver = "stock"', "depth = 1", "personality", '"60"',
      '"=25%"', '"0"', "gc = true", "allow everyone read", "allow uid 1000 use,create quota 8")),
    ("a disk of the stock driver by its old name, and a container's node on it",
     '[count.d]\n'
     'on = "disk/stock:BLOCK"\n'
     '[container.web]\n'
     'share = 30\n',
     ("[disk.d]", 'driver = "stock"', '[container.web]')),
)
# All of it at once, for drivers that take long to start.
TOGETHER = (
    ("everything at once",
     'backlog = "64MiB"\n'
     '[cpu]\n'
     'driver = "DRIVER"\n'
     'personality = "rtss98"\n'
     'policy = "sfq"\n'
     'tune = "quantum 3ms"\n'
     'access = ["allow everyone read"]\n'
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     'share = "60 100ms/s"\n'
     'policy = "mtrls"\n'
     'tune = "turn 20ms"\n'
     '[cpu.nodes."web/site1"]\n'
     'kind = "queue"\n'
     'share = "0.5 50ms/s"\n'
     'class = "rr"\n'
     '[cpu.nodes."web/site2"]\n'
     'kind = "queue"\n'
     'class = "edf"\n'
     'share = "0.25 20ms/s"\n'
     '[cpu.nodes.fixed]\n'
     'kind = "queue"\n'
     'share = "=25%"\n'
     '[cpu.nodes.few]\n'
     'kind = "queue"\n'
     'cap = "500ms/s"\n'
     'members_max = 17\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n'
     '[[rule]]\n'
     'match = { command = "no-such-*", gid = 4712, group = 4713, unit = "no-such.service" }\n'
     'cpu = "few"\n'
     '[[rule]]\n'
     'match = { cgroup = "/no/such/slice" }\n'
     'container = "tenant/site1"\n'
     '[[rule]]\n'
     'match = { protocol = "udp", port = "8000-8999" }\n'
     'net = "a"\n'
     '[[rule]]\n'
     'match = { protocol = "tcp", local_port = 443, remote = "10.0.0.0/8" }\n'
     'net = "a"\n'
     '[[rule]]\n'
     'match = { from = "not 10.0.0.0/8", local_port = 443 }\n'
     'receive = "100/s"\n'
     '[container.tenant]\n'
     'holds = "containers"\n'
     'share = "30"\n'
     'gc = true\n'
     '[container."tenant/site1"]\n'
     'share = "24"\n'
     'access = ["allow uid 1000 use"]\n'
     '[cpu.nodes.tenant]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[cpu.nodes."tenant/site1"]\n'
     'kind = "queue"\n'
     'share = "24"\n'
     'cap = "250ms/s"\n'
     '[link.net.nodes.tenant]\n'
     'kind = "scheduler"\n'
     'share = "30"\n'
     '[link.net.nodes."tenant/site1"]\n'
     'kind = "queue"\n'
     'share = "24"\n'
     'cap = "5mbit"\n'
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'receive = "xdp"\n'
     'receive_in = "few"\n'
     'personality = "qlinux"\n'
     'policy = "sfq"\n'
     'access = ["allow everyone read"]\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'class = "drr"\n'
     'share = "300 20mbit"\n'
     'cap = "50mbit"\n'
     'members_max = 30\n'
     'gc = true\n'
     'tune = "receive 1000/s"\n'
     'access = ["allow uid 1000 use,create quota 8"]\n'
     '[link.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n'
     'share = "300 40mbit"\n'
     '[link.net.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "=50% 10mbit"\n'
     '[link.net.nodes.flows]\n'
     'kind = "queue"\n'
     'share = 10\n'
     'bytes_max = 300000\n'
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "DRIVER"\n'
     'depth = 4\n'
     'floor = "3MB/s"\n'
     'front = "ublk"\n'
     'model = "flash"\n'
     'personality = "qlinux"\n'
     'policy = "yfq"\n'
     'tune = "anticipate 3ms"\n'
     'access = ["allow everyone read"]\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'class = "scan-edf"\n'
     'tune = "deadline 20ms"\n'
     'share = "300 1MB/s"\n'
     'cap = "2MB/s"\n'
     'gc = true\n'
     'access = ["allow uid 1000 use,create quota 8"]\n'
     '[disk.d.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n'
     '[count.c]\n'
     'on = "file:/run"\n'
     'personality = "qlinux"\n'
     'policy = "sfq"\n'
     'tune = "quantum 2ms"\n'
     'access = ["allow everyone read"]\n'
     '[count.c.nodes.a]\n'
     'kind = "queue"\n'
     'share = 7\n',
     ("64MiB", "quantum 3ms", "4712", "no-such.service", "/no/such/slice", "8000-8999",
      'receive = "xdp"', 'receive_in = "few"', '"qlinux"', '"drr"', "receive 1000/s",
      'model = "flash"', '"scan-edf"', "deadline 20ms", '"2MB/s"', '"wf2q+"', '"mtrls"', "turn 20ms", '"rr"', '"edf"', '"0.5 50ms/s"', '"60 100ms/s"', '"=25%"',
      '"500ms/s"', '"250ms/s"', '"5mbit"', "members_max = 17", "gc = true",
      "allow uid 1000 use,create quota 8", "no-such-*",
      "10.0.0.0/8", '[container."tenant/site1"]', 'interface = "LINK"', 'rate = "100mbit"',
      '"300 20mbit"', '"50mbit"', "members_max = 30", '"=50% 10mbit"', "depth = 4",
      'bytes_max = "300kB"', '"yfq"', "anticipate 3ms", 'floor = "3MB/s"', '"300 1MB/s"', "file:/run",
      '"7"')),
)
