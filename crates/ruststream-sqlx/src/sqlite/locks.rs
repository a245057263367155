//! Locks by name of a file of `SQLite`: of files beside it, so that all processes that work on it see them, and none outlives its process.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ruststream::transport::ErrorKind;

use crate::error::Failure;
use crate::guard::{AdvisoryGuard, Boxed, Guards, Locked, Place, ToLock};

/// Names share lock files, so that their number is bounded: two that share one wait for each other now and then.
const FILES: u64 = 1_024;

pub(super) struct FileGuards {
    path: PathBuf,
}

impl FileGuards {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn no_row_locks(&self) -> Failure {
        Failure::new(
            ErrorKind::Invalid,
            format!(
                "{} has no rows that can be locked, as `.row_lock()` wants: leave it out, or use `.advisory_lock(..)`",
                self.path.display()
            ),
        )
    }
}

impl Guards for FileGuards {
    fn check_rows(&self) -> Result<(), Failure> {
        Err(self.no_row_locks())
    }

    fn place(&self) -> Boxed<'_, Result<Place, Failure>> {
        Box::pin(async { Err(self.no_row_locks()) })
    }

    fn lock_rows(&self, _: Place, _: ToLock) -> Boxed<'_, Result<Locked, Failure>> {
        Box::pin(async { Err(self.no_row_locks()) })
    }

    fn advisory(&self) -> Arc<dyn AdvisoryGuard> {
        let mut folder = self.path.clone().into_os_string();
        folder.push("-locks");
        Arc::new(FileNames {
            folder: folder.into(),
            held: Mutex::default(),
        })
    }
}

struct FileNames {
    folder: PathBuf,
    /// The lock files that are held, each with the names it is held for.
    held: Mutex<HashMap<u64, (File, Vec<String>)>>,
}

impl FileNames {
    /// Locking a file that no one waits for is one call that never blocks.
    fn lock(&self, name: String) -> Result<bool, std::io::Error> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number(&name);
        if let Some((_, names)) = held.get_mut(&number) {
            let free = !names.contains(&name);
            if free {
                names.push(name);
            }
            return Ok(free);
        }
        std::fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(format!("{number:03x}"));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {
                held.insert(number, (file, vec![name]));
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn number(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() % FILES
}

impl AdvisoryGuard for FileNames {
    fn try_lock(&self, names: Vec<String>) -> Boxed<'_, Result<Vec<bool>, Failure>> {
        let locked: Result<Vec<bool>, std::io::Error> = names.into_iter().map(|name| self.lock(name)).collect();
        let locked = locked.map_err(|error| {
            Failure::new(
                ErrorKind::Denied,
                format!(
                    "no lock can be taken in {} ({error}): give this user write access to it",
                    self.folder.display()
                ),
            )
        });
        Box::pin(std::future::ready(locked))
    }

    fn unlock(&self, names: Vec<String>) -> Boxed<'_, ()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            let number = number(&name);
            if let Some((_, names)) = held.get_mut(&number) {
                names.retain(|known| *known != name);
                if names.is_empty() {
                    held.remove(&number);
                }
            }
        }
        Box::pin(std::future::ready(()))
    }

    fn look(&self) -> Boxed<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}
