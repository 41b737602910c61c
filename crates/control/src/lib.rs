// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket `/run/reserv/control.sock`: what is said there, by reservd and by whoever
//! asks it (the commands, libreserv), and how one asks. It carries what is no file of the name
//! space, and for root the files too. Root only: reservd asks the kernel who connected, beside the
//! mode 0600.
//!
//! One JSON object per line, one line per answer; a connection may carry several.
//!
//! ```text
//! {"request":"version"}                          → Version: {"version":"0.1.0","pid":4711,"mount":"/reserv","device":57}
//! {"request":"status"}                           → {"version":…,"resources":{"cpu":{"driver":…}},…}
//! {"request":"up","config":{…},"dry_run":true,
//!  "mode":"refuse"|"drain"|"flush"}              → Changes: {"changes":["create cpu/web: …", …]}
//! {"request":"up","personality":"eclipse"}       → Changes: {"changes":["set cpu personality …"]}
//! {"request":"up","count":{"NAME":"file:PATH"}}  → Changes: {"changes":["bring up NAME, counting file:PATH"]}
//! {"request":"save"}                             → Saved: {"config":{…},"missing":{"eth0":"why"}}
//! {"request":"rules"}                            → {"rules":[{"match":{…},"cpu":"…"}],"watch":"events",
//!                                                   "applied":{"4711":[2,"cpu/web"]}: rule 2 put 4711 there,
//!                                                   "counts":[{"rule":3,"link":"eth0","packets":…,"bytes":…,
//!                                                     "dropped":…}]}: what came in by rule 3
//! {"request":"down"}                             → Stopped: {"stopped":true}, when everything has been given back
//! {"request":"down","resource":"NAME"}           → Stopped, when this counting resource has been
//! {"request":"upgrade","resource":"NAME"}        → {"upgraded":{"from":2,"to":3,"packets":118,…}}, or null: there is nothing newer
//! anything refused                               → {"error":{"errno":22,"text":"…","hint":"…"}}   (Refused)
//! ```
//!
//! The same with files, for who must not wait for the mount (the daemon's `fs/by_path.rs` says why,
//! and what `number` is):
//!
//! ```text
//! {"request":"kind","path":"cpu/web"}            → Kind: {"directory":true,"inode":72339…}
//! {"request":"read","path":"cpu/web/share"}      → Text: {"text":"24 0\n"}
//! {"request":"list","path":"cpu/web"}            → Names: {"files":["share",…],"directories":["site1"],"inodes":[72339…]}
//! {"request":"write","path":"cpu/web/share","text":"24",
//!  "number":N,"again":true}                      → Done: {"done":true}
//! {"request":"mkdir","path":"cpu/web/a",…}       → Done
//! {"request":"rmdir","path":"cpu/web/a",…}       → Done
//! {"request":"rename","from":"cpu/a","to":"cpu/b",…}  → Done
//! ```
//!
//! A configuration is the model's `Config` as JSON. `config`, `dry_run` and `mode` may be left out
//! of `up`: without `config` it only begins the count of revivals anew; `mode` says what happens to
//! members of queues that the configuration leaves out, `refuse` if left out. With
//! `rules_were`, the rules as the asking one saw them, it is refused (EAGAIN) where they are others
//! by now.

mod answer;
mod asker;
mod connection;
mod reason;
mod request;

pub use answer::{Changes, Done, Kind, Names, Refused, Saved, Stopped, Text, Version};
pub use asker::{Asker, Failed};
pub use connection::Connection;
pub use reason::{not_running, plain, reason};
pub use request::{Ask, Command, Mode, NUMBER_END, Up};
