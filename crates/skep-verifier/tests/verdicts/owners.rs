//! Random programs that allocate objects, and a model of who owns them.
//!
//! A program is a list of actions on four objects, in `r6` to `r9`. The list begins as one that keeps all rules, and
//! then loses, repeats or exchanges some actions. The model follows what is left of it and knows
//! only this: an object is owned from where it is allocated, or found in the list, until it is freed or put into the
//! list, where others may free it once the lock is released; what is owned at an end is leaked. The verifier must
//! refuse what the model does, and accept the rest.

use skep_verdicts::{Verdict, entries};

use super::verdict;

/// The number of objects.
const OBJECTS: usize = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 20) % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Debug)]
enum Action {
    /// Allocates it; without memory, frees the listed ones and ends.
    New {
        at: usize,
        else_free: Vec<usize>,
    },
    /// Takes it out of the list, and does the same if the list is empty.
    Pop {
        at: usize,
        else_free: Vec<usize>,
    },
    Free(usize),
    Read(usize),
    /// Puts it into the list; reads it before the lock is released, or frees it there.
    Push {
        at: usize,
        read: bool,
        free: bool,
        unlock: bool,
    },
    /// Copies one to another.
    Copy {
        from: usize,
        to: usize,
    },
    /// Compares it with null, and ends if it is, leaving the others to the other way.
    Check(usize),
}

/// What the model knows of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// It was not written.
    Nothing,
    Null,
    /// The object of that number.
    Object(usize),
}

/// A list of actions that keeps the rules.
fn kept(random: &mut Random) -> Vec<Action> {
    let (mut owned, mut actions) = ([false; OBJECTS], Vec::new());
    for _ in 0..3 + random.below(6) {
        let at = random.below(OBJECTS);
        if !owned[at] {
            let else_free = (0..OBJECTS).filter(|other| owned[*other]).collect();
            owned[at] = true;
            actions.push(match random.chance(30) {
                true => Action::Pop { at, else_free },
                false => Action::New { at, else_free },
            });
            continue;
        }
        match random.below(5) {
            0 => actions.push(Action::Free(at)),
            1 => {
                actions.push(Action::Push { at, read: random.chance(50), free: false, unlock: true });
            }
            2 => {
                actions.push(Action::Check(at));
                continue;
            }
            _ => {
                actions.push(Action::Read(at));
                continue;
            }
        }
        owned[at] = false;
    }
    actions.extend((0..OBJECTS).filter(|at| owned[*at]).map(Action::Free));
    actions
}

/// Changes one action.
fn change(random: &mut Random, actions: &mut Vec<Action>) {
    let at = random.below(actions.len());
    match random.below(6) {
        0 => drop(actions.remove(at)),
        1 => actions.insert(at, actions[at].clone()),
        2 => {
            let other = random.below(actions.len());
            actions.swap(at, other);
        }
        3 => actions.insert(at, Action::Copy { from: random.below(OBJECTS), to: random.below(OBJECTS) }),
        4 => match &mut actions[at] {
            Action::New { else_free, .. } | Action::Pop { else_free, .. } if !else_free.is_empty() => {
                else_free.remove(random.below(else_free.len()));
            }
            Action::Push { unlock, .. } if random.chance(50) => *unlock = false,
            Action::Push { free, .. } => *free = true,
            _ => {}
        },
        _ => {
            let of = random.below(OBJECTS);
            actions.insert(at, if random.chance(50) { Action::Read(of) } else { Action::Free(of) });
        }
    }
    if actions.is_empty() {
        actions.push(Action::Read(0));
    }
}

/// The state of the model on one path.
#[derive(Clone)]
struct Model {
    holds: [Holds; OBJECTS],
    /// Which objects are owned, by number.
    owned: Vec<bool>,
}

impl Model {
    fn find(&self, at: usize) -> Option<usize> {
        match self.holds[at] {
            Holds::Object(number) if self.owned[number] => Some(number),
            _ => None,
        }
    }

    /// It is not owned any more, and no copy of it may be used.
    fn give_up(&mut self, at: usize) -> bool {
        let Some(number) = self.find(at) else { return false };
        self.owned[number] = false;
        true
    }

    /// Frees these, ends, and says whether that is right.
    fn ends(mut self, free: &[usize]) -> bool {
        free.iter().all(|at| self.give_up(*at)) && !self.owned.contains(&true)
    }

    /// Whether the action keeps the rules; `None` if that is not the model's to say.
    fn keeps(&mut self, action: &Action) -> Option<bool> {
        Some(match action {
            Action::New { at, else_free } | Action::Pop { at, else_free } => {
                self.holds[*at] = Holds::Null;
                if !self.clone().ends(else_free) {
                    return Some(false);
                }
                self.holds[*at] = Holds::Object(self.owned.len());
                self.owned.push(true);
                true
            }
            Action::Free(at) => self.give_up(*at),
            Action::Read(at) => self.find(*at).is_some(),
            Action::Push { at, free, unlock, .. } => self.give_up(*at) && !free && *unlock,
            // The address of what was freed may still be copied, but is good for nothing.
            Action::Copy { from, to } => {
                self.holds[*to] = self.holds[*from];
                self.holds[*from] != Holds::Nothing
            }
            // What is owned is not null. What was freed may be compared or not.
            Action::Check(at) => match self.holds[*at] {
                Holds::Nothing => false,
                _ => return self.find(*at).map(|_| true),
            },
        })
    }
}

/// Whether the program keeps the rules, if the model says.
fn keeps(actions: &[Action]) -> Option<bool> {
    let mut model = Model { holds: [Holds::Nothing; OBJECTS], owned: Vec::new() };
    for action in actions {
        if !model.keeps(action)? {
            return Some(false);
        }
    }
    Some(model.ends(&[]))
}

/// The program as text.
fn text(actions: &[Action]) -> String {
    let mut text = "== random\ntype: tc\nstruct: item 40 lnode@16\n\
                    map: l array 4 24 1 lock@0 list@8=item:lnode16\ninsns:\n"
        .to_owned();
    let lock = "r1 = map_value[l] ll\ncall bpf_spin_lock\n";
    let unlock = "r1 = map_value[l] ll\ncall bpf_spin_unlock\n";
    let free = |at: &usize| format!("r1 = r{}\nr2 = 0\ncall kfunc[bpf_obj_drop_impl]\n", at + 6);
    for (number, action) in actions.iter().enumerate() {
        match action {
            Action::New { at, else_free } | Action::Pop { at, else_free } => {
                let reg = at + 6;
                if let Action::New { .. } = action {
                    text += &format!("r1 = type[item]\nr2 = 0\ncall kfunc[bpf_obj_new_impl]\nr{reg} = r0\n");
                } else {
                    text += &format!(
                        "{lock}r1 = map_value[l]+8 ll\ncall kfunc[bpf_list_pop_front]\nr{reg} = r0\n{unlock}"
                    );
                }
                text += &format!("if r{reg} != 0 goto have{number}\n");
                else_free.iter().for_each(|at| text += &free(at));
                text += &format!("r0 = 0\nexit\nhave{number}:\n");
                if let Action::Pop { .. } = action {
                    text += &format!("r{reg} += -16\n");
                }
            }
            Action::Free(at) => text += &free(at),
            Action::Read(at) => text += &format!("r1 = *(u64 *)(r{} + 0)\n", at + 6),
            Action::Push { at, read, free: frees, unlock: unlocks } => {
                let reg = at + 6;
                text += lock;
                text += &format!(
                    "r1 = map_value[l]+8 ll\nr2 = r{reg}\nr2 += 16\nr3 = 0\nr4 = 0\ncall kfunc[bpf_list_push_front_impl]\n"
                );
                if *read {
                    text += &format!("r1 = *(u64 *)(r{reg} + 0)\n");
                }
                if *frees {
                    text += &free(at);
                }
                if *unlocks {
                    text += unlock;
                }
            }
            Action::Copy { from, to } => text += &format!("r{} = r{}\n", to + 6, from + 6),
            Action::Check(at) => {
                text += &format!("if r{} != 0 goto have{number}\nr0 = 0\nexit\nhave{number}:\n", at + 6);
            }
        }
    }
    text + "r0 = 0\nexit\n"
}

#[test]
fn random_owners_of_objects_keep_what_a_model_demands() {
    let cases = std::env::var("SKEP_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(800u64);
    let first = std::env::var("SKEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    let (mut accepted, mut refused) = (0, 0);
    for seed in first..first + cases {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(2);
        let mut actions = kept(&mut random);
        for _ in 0..random.below(3) {
            change(&mut random, &mut actions);
        }
        let Some(expected) = keeps(&actions) else { continue };
        let text = text(&actions);
        let (found, log) = verdict(&entries(&text).unwrap()[0], false).unwrap();
        *if expected { &mut accepted } else { &mut refused } += 1;
        assert_eq!(found == Verdict::Accept, expected, "SKEP_SEED={seed}: {log}\n{actions:?}\n{text}");
    }
    println!("{accepted} programs keep the rules, {refused} break one");
    assert!(accepted.min(refused) * 5 >= cases, "{accepted} programs keep the rules, {refused} break one");
}
