# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `up --dry-run` and `up` refuse before anything is loaded (round_trip.py)."""

# What is refused before anything is loaded, with a word of the reason.
REFUSED = (
    ("a minimum beyond the machine",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 8000cpu"\n',
     "would not be kept"),
    ("a minimum beyond the node above",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     '[cpu.nodes."s/a"]\n'
     'kind = "queue"\n'
     'share = "100 10ms/s"\n',
     "would not be kept"),
    ("a cap below the minimum",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "300 100ms/s"\n'
     'cap = "50ms/s"\n',
     "less than its minimum"),
    ("a cap in another resource's unit",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "2MB/s"\n',
     "this is the CPU"),
    ("fixed shares of more than all",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'share = "=60%"\n'
     '[cpu.nodes.b]\n'
     'kind = "queue"\n'
     'share = "=50%"\n',
     "fixed shares"),
    ("a container whose node would be something else",
     '[cpu.nodes.web]\n'
     'kind = "scheduler"\n'
     '[container.web]\n',
     "cpu/web is no queue"),
    ("a container below one that there is not",
     '[container."web/site1"]\n',
     "no container"),
    ("a minimum of a container's node that would not be kept",
     '[cpu.nodes.web]\n'
     'kind = "queue"\n'
     'share = "10 8000cpu"\n'
     '[container.web]\n'
     'share = "30"\n',
     "would not be kept"),
    ("a minimum beyond the link",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 99mbit"\n',
     "would not be kept"),
    ("a minimum on a link without a rate",
     '[link.net]\n'
     'interface = "LINK"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = "100 9mbit"\n',
     "net has no rate, so nothing can be promised"),
    ("an interface that is not there",
     '[count.net]\n'
     'on = "link:nosuchiface@1mbit"\n',
     "no such interface"),
    ("a disk that is not there",
     '[count.d]\n'
     'on = "disk:/dev/no-such-disk"\n',
     "No such file"),
    ("bytes that wait in a queue of the CPU",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'bytes_max = "20kB"\n',
     "20kB: a CPU queue has no limit"),
    ("a source of the CPU",
     '[cpu]\n'
     'on = "net:lo"\n',
     "on"),
    ("a driver of what is counted",
     '[count.c]\n'
     'on = "net:LINK"\n'
     'driver = "full"\n',
     "driver"),
    ("a rule of a resource that is not there",
     '[[rule]]\n'
     'match = { uid = 4711 }\n'
     'nosuch = "a"\n',
     "which there is not"),
)
# What the stock drivers refuse. DISK is a file, BLOCK a block device.
REFUSED_STOCK = (
    ("a policy that the kernel's scheduler has not",
     '[cpu.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "mtrls"\n',
     "the stock driver has no policy mtrls"),
    ("a class that it has not",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'class = "edf"\n',
     "the stock driver has no class edf"),
    ("a personality that needs such a class",
     '[cpu]\n'
     'personality = "eclipse"\n',
     "the stock driver has no "),
    ("tunables of the CPU",
     '[cpu]\n'
     'tune = "quantum 20ms"\n',
     "tunables"),
    ("tunables of a node of the CPU",
     '[cpu.nodes.a]\n'
     'kind = "queue"\n'
     'tune = "quantum 20ms"\n',
     "tunables"),
    ("tunables of HTB",
     '[count.net]\n'
     'on = "SOURCE"\n'
     'tune = "quantum 20ms"\n',
     "tun"),
    ("tunables of a node of HTB",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'tune = "receive 1000/s"\n',
     "what comes in is not told apart here"),
    ("who processes what comes in by HTB's link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "DRIVER"\n'
     'receive_in = "in"\n',
     "in"),
    ("a policy that HTB has not",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.s]\n'
     'kind = "scheduler"\n'
     'policy = "wf2q+"\n',
     "the stock driver has no policy wf2q+"),
    ("a class that HTB has not",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'class = "drr"\n',
     "the stock driver has no class drr"),
    ("two limits of one queue of HTB's",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 30\n'
     'bytes_max = 300000\n',
     "not by both"),
    ("weights further apart than HTB's",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[count.net.nodes.a]\n'
     'kind = "queue"\n'
     'share = 1000\n'
     '[count.net.nodes.q0]\n'
     'kind = "queue"\n'
     'share = "7.692"\n',
     "net/q0 with weight 7.692 beside net/a with 1000: HTB shares by weights that differ by 130 to"
     " 1 at most, so beside 1000 from 7.693 on"),
    ("weights of containers likewise",
     '[count.net]\n'
     'on = "SOURCE"\n'
     '[container.a]\n'
     'share = 20000\n',
     "net/q0 with weight 100 beside net/a with 20000: HTB shares"),
    ("more levels than HTB's",
     '[count.net]\n'
     'on = "SOURCE"\n' + "".join(
         f'[count.net.nodes."{"/".join("abcdefgh"[:n])}"]\nkind = "scheduler"\n'
         for n in range(1, 9)),
     "HTB has 8 levels, the queues' among them"),
    ("a file as the stock driver's disk",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "stock"\n',
     "no block device"),
    ("a class that the kernel's elevators have not",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'class = "scan-edf"\n',
     "the stock driver has no class scan-edf"),
    ("a floor of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'floor = "3MB/s"\n',
     "it takes no floor"),
    ("a front end of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'front = "fuse"\n',
     "no front end"),
    ("a model of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'model = "flash"\n',
     "no model of a disk"),
    ("a depth of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'depth = 4\n',
     "a depth of 1"),
    ("tunables of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     'tune = "quantum 20ms"\n',
     "tun"),
    ("tunables of a node of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'tune = "quantum 20ms"\n',
     "tun"),
    ("a limit of a disk's queue",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 3\n',
     "limit"),
    ("a limit of bytes of a disk's queue",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'bytes_max = "20kB"\n',
     "limit"),
    ("a cap of the stock driver's disk",
     '[disk.d]\n'
     'path = "BLOCK"\n'
     'driver = "stock"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "1MB/s"\n',
     "has no caps"),
)
# What the full drivers refuse, and who counts only.
REFUSED_FULL = (
    ("a limit in the full driver of a disk's queue",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "full"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 3\n',
     "limit"),
    ("a limit in the full driver of bytes of a disk's queue",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "full"\n'
     '[disk.d.nodes.a]\n'
     'kind = "queue"\n'
     'bytes_max = "20kB"\n',
     "limit"),
    ("a tunable of threads at a disk",
     '[disk.d]\n'
     'path = "DISK"\n'
     'driver = "full"\n'
     'tune = "quantum 20ms"\n',
     "a disk's nodes have no quantum"),
    ("a tunable of threads at a link",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "full"\n'
     'tune = "quantum 20ms"\n',
     "a link's nodes have no such tunables"),
    ("what comes in by a queue of a link without an entrance",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "full"\n'
     '[link.net.nodes.a]\n'
     'kind = "queue"\n'
     'tune = "receive 1000/s"\n',
     "what comes in is not told apart here"),
    ("a policy that a link has not",
     '[link.net]\n'
     'interface = "LINK"\n'
     'rate = "100mbit"\n'
     'driver = "full"\n'
     'policy = "wrr"\n',
     "the full driver has no policy wrr"),
    ("a cap of what is counted",
     '[count.c]\n'
     'on = "net:LINK"\n'
     '[count.c.nodes.a]\n'
     'kind = "queue"\n'
     'cap = "1mbit"\n',
     "so it has no caps"),
    ("a limit of what is counted",
     '[count.c]\n'
     'on = "net:LINK"\n'
     '[count.c.nodes.a]\n'
     'kind = "queue"\n'
     'members_max = 3\n',
     "so it has no limits"),
)
