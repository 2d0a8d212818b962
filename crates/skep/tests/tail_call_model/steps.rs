//! The possible next steps.

use std::fmt;

use crate::check::Violation;
use crate::machine::{Place, Spot, Word};
use crate::set::Set;
use crate::state::{Entry, Model, State};
use crate::{host, keeper, reader, updater};

/// One step of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) who: Who,
    pub(crate) what: What,
}

#[derive(Clone, Copy)]
pub(crate) enum Who {
    Reader(usize),
    Updater(u8),
    Keeper,
    Host,
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    Enter,
    Fetch { spot: Spot, word: Word, is_stale: bool },
    Unwind,
    FindCountExhausted(Place),
    Execute(Place),
    Jump { from: Place, to: Place },
    Leave,
    ComeAgain,
    Synchronise,
    Build { entry: Entry, reuses: bool },
    WantToRemove,
    Lock { found: Option<Entry>, new: Option<Entry> },
    FindEmpty,
    Poke { spot: Spot, word: Word },
    WriteHalf(Place),
    WriteRest(Place),
    Clean,
    TakeOver { cookie: bool, sync: bool },
    SeeSynchronised { cookie: bool },
    CallSynchronize { sync: bool },
    Return,
    TakeCookie,
    Retire(Set<Place>),
    Reclaim { freed: Set<Place>, kept: Set<Place> },
}

/// The steps that are possible in one state, with the states that they lead to.
pub(crate) struct Steps(pub(crate) Vec<(Event, Result<State, Violation>)>);

impl Steps {
    pub(crate) fn from(model: &Model, state: &State) -> Self {
        let mut steps = Self(Vec::with_capacity(8));
        updater::steps(model, state, &mut steps);
        keeper::steps(model, state, &mut steps);
        host::steps(model, state, &mut steps);
        reader::steps(model, state, &mut steps);
        steps
    }

    pub(crate) fn add(&mut self, who: Who, what: What, then: State) {
        self.0.push((Event { who, what }, Ok(then)));
    }

    pub(crate) fn add_wrong(&mut self, who: Who, what: What, violation: Violation) {
        self.0.push((Event { who, what }, Err(violation)));
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.who {
            Who::Reader(index) => format!("reader {}", index + 1),
            Who::Updater(index) => format!("updater {}", index + 1),
            Who::Keeper => "keeper".into(),
            Who::Host => "host".into(),
        };
        write!(f, "{who:<9}  {}", self.what)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enter => f.write_str("enters a read section"),
            Self::Fetch { spot, word, is_stale } => {
                write!(f, "fetches {word} at {spot}{}", if *is_stale { ", which is stale" } else { "" })
            }
            Self::Unwind => f.write_str("unwinds its frame, in line"),
            Self::FindCountExhausted(place) => write!(f, "finds at {place} that no tail call is left"),
            Self::Execute(place) => write!(f, "executes the unwinding at {place}"),
            Self::Jump { from, to } => write!(f, "executes the jump at {from}, to {to}"),
            Self::Leave => f.write_str("leaves its section"),
            Self::ComeAgain => f.write_str("comes to the site again, in the same section"),
            Self::Synchronise => f.write_str("synchronises its CPU"),
            Self::Build { entry, reuses } => {
                write!(f, "builds {entry}{}", if *reuses { ", in memory that was used before" } else { "" })
            }
            Self::WantToRemove => f.write_str("wants to remove what is installed"),
            Self::Lock { found, new } => {
                let name =
                    |entry: &Option<Entry>| entry.map_or("nothing".into(), |entry| entry.version.to_string());
                write!(f, "takes the lock; the slot held {}, and now {}", name(found), name(new))
            }
            Self::FindEmpty => f.write_str("finds nothing to remove"),
            Self::Poke { spot, word } => write!(f, "stores {word} to {spot}"),
            Self::WriteHalf(place) => write!(f, "writes the unwinding of the stub at {place}"),
            Self::WriteRest(place) => write!(f, "writes the jump of the stub at {place}"),
            Self::Clean => f.write_str("has made the caches right"),
            Self::TakeOver { cookie, sync } => {
                let cookie = if *cookie { ", takes a cookie" } else { "" };
                let sync = if *sync { ", calls membarrier" } else { "" };
                write!(f, "takes over what was retired{cookie}{sync}")
            }
            Self::SeeSynchronised { cookie } => {
                write!(f, "sees that all have synchronised{}", if *cookie { ", takes a cookie" } else { "" })
            }
            Self::CallSynchronize { sync } => {
                let first = if *sync {
                    ", which calls membarrier"
                } else {
                    ", and nothing is there to be taken over"
                };
                write!(f, "calls synchronize{first}")
            }
            Self::Return => f.write_str("returns from synchronize"),
            Self::TakeCookie => f.write_str("takes a cookie"),
            Self::Retire(places) if places.is_empty() => f.write_str("has nothing to retire"),
            Self::Retire(places) => write!(f, "retires {places}"),
            Self::Reclaim { freed, kept } if kept.is_empty() => write!(f, "reclaims {freed}"),
            Self::Reclaim { freed, kept } => write!(f, "reclaims {freed}; {kept} has other owners"),
        }
    }
}
