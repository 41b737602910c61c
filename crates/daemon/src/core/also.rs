// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a configuration wants besides trees, and what that asks of them: containers. It is a part
//! of the same `up`: looked at with the trees before anything is changed, done after them, and
//! where it is refused then they are put back.

use reserv_model::{NodePath, Request, Tree};

use super::slot::Slot;
use super::{Core, Refusal};

/// A request to a tree, and of which container.
pub type Of = (NodePath, Request);

/// Answers the refusal, with a word more where not all was undone.
pub type Undoing<'a> = Box<dyn FnOnce(Refusal) -> Refusal + 'a>;

/// See the head of this file.
pub trait Also {
    /// The difference, in words; an error if it cannot be.
    fn words(&self) -> Result<Vec<String>, Refusal>;
    /// What it will ask of a tree. No slot: of a resource that comes.
    fn requests(&self, slot: Option<&Slot>, tree: &Tree) -> Result<Vec<Of>, Refusal>;
    /// Does it, whole or not at all; what undoes it, because of that refusal.
    fn carry_out(&self) -> Result<Undoing<'_>, Refusal>;
}

/// Checks a tree's requests with those that come after them; a refusal names the container.
pub(super) fn check(
    first: &[Request],
    (then, last): (&[Of], &[Request]),
    check: impl Fn(&[Request]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut all = first.to_vec();
    all.extend(then.iter().map(|(_, request)| request.clone()));
    all.extend(last.iter().cloned());
    let Err(refusal) = check(&all) else { return Ok(()) };
    for (n, (path, _)) in (first.len()..).zip(then) {
        check(&all[..n])?;
        if let Err(refusal) = check(&all[..=n]) {
            return Err(Refusal { text: format!("container {path}: {}", refusal.text), ..refusal });
        }
    }
    Err(refusal)
}

impl Core {
    /// Of the trees that the configuration leaves as they are: whether they take the rest.
    pub(super) fn check_others(
        &self,
        also: &dyn Also,
        changed: impl Fn(&Slot) -> bool,
    ) -> Result<(), Refusal> {
        if also.words()?.is_empty() {
            return Ok(());
        }
        for slot in
            self.slots().values().filter(|slot| slot.is_shown() && slot.is_up() && !changed(slot))
        {
            let engine = slot.engine()?;
            let then = also.requests(Some(slot), engine.tree())?;
            check(&[], (&then, &[]), |requests| engine.check(requests).map(drop))?;
        }
        Ok(())
    }
}
