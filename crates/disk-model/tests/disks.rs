// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the modelled disks promise: how long requests take, alone and one after another.

use reserv_disk_model::{Disk, Flash, Kind, Request, SECTOR, Spinning};

const MS: u64 = 1_000_000;

fn read(sector: u64, sectors: u32) -> Request {
    Request { sector, sectors, write: false }
}

fn spinning(of: Spinning) -> Disk {
    Disk::new(Kind::Spinning(of))
}

/// A request after another as soon as that is done: the time of each.
fn one_by_one(disk: &mut Disk, requests: impl IntoIterator<Item = Request>) -> Vec<u64> {
    let mut now = 0;
    let mut out = Vec::new();
    for r in requests {
        let s = disk.submit(now, r).expect("on the disk");
        assert!(s.begun >= now && s.done > s.begun, "{r:?}: {s:?}");
        out.push(s.done - now);
        now = s.done;
    }
    out
}

/// Sectors that are spread evenly, in no order.
fn spread(of: u64, count: u64) -> impl Iterator<Item = Request> {
    let mix = |k: u64| {
        let z = k.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 3
    };
    (1..=count).map(move |k| read(mix(k) % (of - 64) / 8 * 8, 8))
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / times.len() as u64
}

/// The example of lib.rs.
#[test]
fn seek_rotation_transfer() {
    let k = Spinning::DESKTOP;
    let took = spinning(k).submit(0, read(k.sectors / 2, 8)).unwrap().took() - k.overhead_ns;
    // The square root of one half: 0.7071.
    let seek = MS + 14 * MS * 7071 / 10_000;
    let transfer = k.revolution_ns * 8 / k.track;
    assert!(
        (seek - 10_000 + transfer..seek + k.revolution_ns + transfer + 10_000).contains(&took),
        "{took}"
    );
}

#[test]
fn a_seek_grows_with_the_root_of_its_distance() {
    let k = Spinning::DESKTOP;
    let most = (k.sectors - 1) / (k.track * k.heads);
    assert_eq!(k.seek_ns(0), 0);
    assert!(k.seek_ns(1) >= k.seek_min_ns && k.seek_ns(1) < k.seek_min_ns + MS / 10);
    assert_eq!(k.seek_ns(most), k.seek_max_ns);
    assert_eq!(k.seek_ns(10 * most), k.seek_max_ns);
    let (quarter, half) =
        (k.seek_ns(most / 4) - k.seek_min_ns, (k.seek_max_ns - k.seek_min_ns) / 2);
    assert!(quarter.abs_diff(half) < MS / 100, "{quarter} {half}");
    for d in 1..1000 {
        assert!(k.seek_ns(d) <= k.seek_ns(d + 1));
    }
}

#[test]
fn a_random_request_takes_what_is_said() {
    for (k, about) in [(Spinning::DESKTOP, 12_600_000), (Spinning::SERVER, 5_700_000)] {
        let times = one_by_one(&mut spinning(k), spread(k.sectors, 2000));
        assert!(mean(&times).abs_diff(about) < about / 20, "{} instead of {about}", mean(&times));
        let most =
            k.overhead_ns + k.seek_max_ns + k.revolution_ns + k.transfer_ns(0, 8) + k.switch_ns;
        assert!(times.iter().all(|&t| t <= most));
    }
}

/// Reads that follow one another come at the rate of the medium, whatever their size, also when the
/// host takes half a millisecond between them; writes lose a revolution each.
#[test]
fn sequential_reads_stream() {
    let k = Spinning::DESKTOP;
    for (sectors, think) in [(8, 0), (128, 0), (1024, 0), (2048, MS / 2)] {
        let mut disk = spinning(k);
        let (mut now, mut at) =
            (disk.submit(0, read(0, sectors)).unwrap().done, u64::from(sectors));
        let (from, begin) = (at, now);
        for _ in 0..200 {
            now = disk.submit(now + think, read(at, sectors)).unwrap().done;
            at += u64::from(sectors);
        }
        let medium = k.transfer_ns(from, at - from);
        assert!(
            now - begin >= medium - MS
                && now - begin < medium + medium / 5 + MS + 200 * k.overhead_ns
        );
    }
    let writes = (0..50).map(|i| Request { sector: i * 8, sectors: 8, write: true });
    let times = one_by_one(&mut spinning(k), writes);
    assert!(times[1..].iter().all(|&t| t.abs_diff(k.revolution_ns) < MS / 10), "{times:?}");
}

/// In the order of sectors it is faster than in no order: what an elevator lives from.
#[test]
fn an_elevator_pays() {
    let k = Spinning::SERVER;
    let mut sorted: Vec<Request> = spread(k.sectors, 400).collect();
    let random: u64 = one_by_one(&mut spinning(k), sorted.clone()).iter().sum();
    sorted.sort_by_key(|r| r.sector);
    let swept: u64 = one_by_one(&mut spinning(k), sorted).iter().sum();
    assert!(swept * 3 < random * 2, "{swept} {random}");
}

#[test]
fn flash_serves_as_many_as_it_has_channels() {
    let k = Flash::SATA;
    let mut rates = Vec::new();
    for depth in [1u64, 2, 4, 8, 32] {
        let mut disk = Disk::new(Kind::Flash(k));
        // A request for a page of each channel in turn, `depth` at a time.
        let mut done = vec![0; usize::try_from(depth).unwrap()];
        for i in 0..4000u64 {
            let slot = usize::try_from(i % depth).unwrap();
            done[slot] = disk.submit(done[slot], read(i * k.page, 8)).unwrap().done;
        }
        rates.push(4000 * 1_000_000_000 / done.iter().max().unwrap());
    }
    println!("requests a second at depth 1, 2, 4, 8, 32: {rates:?}");
    assert!(rates.windows(2).all(|w| w[1] >= w[0] * 99 / 100), "{rates:?}");
    assert!(rates[2] > 3 * rates[0] && rates[4] < 16 * rates[0], "{rates:?}");
    // What the interface can move at most.
    let mut disk = Disk::new(Kind::Flash(k));
    let last = (0..64).map(|i| disk.submit(0, read(i * 2048, 2048)).unwrap().done).max().unwrap();
    let rate = 64 * 2048 * SECTOR * 1000 / (last / MS);
    assert!((480_000_000..560_000_000).contains(&rate), "{rate}");
    let read = Disk::new(Kind::Flash(k)).submit(0, read(0, 8)).unwrap().took();
    let write = Disk::new(Kind::Flash(k))
        .submit(0, Request { sector: 0, sectors: 8, write: true })
        .unwrap()
        .took();
    assert!(write > read, "{write} {read}");
}

/// A flush, the last sector, one more, and nonsense; a refusal changes nothing.
#[test]
fn edges() {
    for kind in [Kind::Spinning(Spinning::SERVER), Kind::Flash(Flash::SATA)] {
        let mut disk = Disk::new(kind);
        let all = disk.sectors();
        let flush = disk.submit(5, read(all, 0)).unwrap();
        assert!(flush.done - 5 < MS / 10, "{flush:?}");
        let before = disk.estimate(MS, read(0, 8)).unwrap();
        for (sector, sectors) in [(all, 1), (all - 7, 8), (u64::MAX, 1), (u64::MAX - 1, u32::MAX)] {
            let beyond = disk.submit(MS, read(sector, sectors)).unwrap_err();
            assert!(beyond.to_string().contains(&format!("{sector}+{sectors}")), "{beyond}");
        }
        assert_eq!(disk.estimate(MS, read(0, 8)).unwrap(), before);
        assert_eq!(disk.submit(MS, read(0, 8)).unwrap(), before);
        assert!(disk.submit(MS, read(all - 8, 8)).unwrap().done > MS);
        // At the end of time.
        assert!(
            disk.submit(u64::MAX / 2, read(0, u32::try_from(all.min(1 << 20)).unwrap())).is_ok()
        );
    }
}

/// Requests that wait in the device are served in their order, and the same requests at the same
/// times take the same.
#[test]
fn in_order_and_again_the_same() {
    let run = || {
        let mut disk = spinning(Spinning::SERVER);
        let requests = spread(Spinning::SERVER.sectors, 100).enumerate();
        requests.map(|(i, r)| disk.submit(i as u64 * MS, r).unwrap()).collect::<Vec<_>>()
    };
    let served = run();
    assert!(served.windows(2).all(|w| w[1].begun >= w[0].done));
    assert_eq!(served, run());
}
