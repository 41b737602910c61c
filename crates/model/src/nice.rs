// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's fair scheduler makes of nice values (`sched_prio_to_weight`).

/// The weight of nice 0.
pub const NICE_0: u32 = 1024;

/// Of nice -20 to 19.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a nice value; of one beyond the range, of its end.
pub fn nice_weight(nice: i64) -> u32 {
    let place = usize::try_from(nice.clamp(-20, 19) + 20).unwrap_or(20);
    WEIGHTS.get(place).copied().unwrap_or(NICE_0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_middle() {
        let got = [-20, -1, 0, 1, 19, 20, i64::MIN, i64::MAX].map(nice_weight);
        assert_eq!(got, [88761, 1277, 1024, 820, 15, 15, 88761, 15]);
    }
}
