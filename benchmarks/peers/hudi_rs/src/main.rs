//! hudi-rs behind a pipe: the commands of Peer.java, but for `write`, which it cannot do.
//!
//! `get`, `next` and `scan` hold the file whole; `open` reads ranges of it, which is quicker
//! for one key.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crc32fast::Hasher;
use hudi_core::config::HudiConfigs;
use hudi_core::hfile::{HFileReader, SeekResult, Utf8Key};
use hudi_core::storage::Storage;
use tokio::runtime::{Builder, Runtime};
use url::Url;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let runtime = Builder::new_current_thread().build()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split('\t').collect();
        let told = answer(&runtime, &words)
            .unwrap_or_else(|error| format!("error {}", error.to_string().replace('\n', " ")));
        println!("{told}");
        io::stdout().flush()?;
    }
    Ok(())
}

fn answer(runtime: &Runtime, words: &[&str]) -> Outcome<String> {
    match words {
        ["get", file, keys] => get(file, &read_keys(keys)?),
        ["open", file, keys] => each_anew(runtime, file, &read_keys(keys)?),
        ["next", file, keys] => last(file, &read_keys(keys)?),
        ["scan", file] => scan(file),
        _ => Err(format!("unknown command: {words:?}").into()),
    }
}

fn get(file: &str, keys: &[String]) -> Outcome<String> {
    let mut checksum = Hasher::new();
    let began = Instant::now();
    let mut reader = HFileReader::new(fs::read(file)?)?;
    let mut found = 0;
    for key in keys {
        found += look(&mut reader, key, &mut checksum)?;
    }
    Ok(told(began, found, checksum.finalize().into()))
}

fn last(file: &str, keys: &[String]) -> Outcome<String> {
    let mut reader = HFileReader::new(fs::read(file)?)?;
    let (key, before) = keys.split_last().ok_or("no keys")?;
    for one in before {
        look(&mut reader, one, &mut Hasher::new())?;
    }
    let mut checksum = Hasher::new();
    let began = Instant::now();
    let found = look(&mut reader, key, &mut checksum)?;
    Ok(told(began, found, checksum.finalize().into()))
}

fn each_anew(runtime: &Runtime, file: &str, keys: &[String]) -> Outcome<String> {
    let path = Path::new(file);
    let folder = path.parent().ok_or("no folder")?;
    let name = path
        .file_name()
        .and_then(|one| one.to_str())
        .ok_or("no name")?;
    let base = Url::from_directory_path(folder).map_err(|()| "no address")?;
    let configs = HudiConfigs::new([("hoodie.base.path", base.as_str())]);
    let storage = Storage::new(Arc::new(HashMap::new()), Arc::new(configs))?;
    let mut checksum = Hasher::new();
    let began = Instant::now();
    let mut found = 0;
    for key in keys {
        found += runtime.block_on(one_key(&storage, name, key, &mut checksum))?;
    }
    Ok(told(began, found, checksum.finalize().into()))
}

async fn one_key(
    storage: &Arc<Storage>,
    name: &str,
    key: &str,
    checksum: &mut Hasher,
) -> Outcome<u64> {
    let reader = HFileReader::open_ranged(storage, name).await?;
    let blocks = reader.blocks_for_keys(&[key]);
    for record in reader.read_records_batched(&blocks).await? {
        if record.key() == key.as_bytes() {
            checksum.update(record.value());
            return Ok(1);
        }
    }
    Ok(0)
}

fn scan(file: &str) -> Outcome<String> {
    let began = Instant::now();
    let mut reader = HFileReader::new(fs::read(file)?)?;
    let (mut count, mut bytes) = (0, 0);
    for entry in reader.iter()? {
        let entry = entry?;
        count += 1;
        bytes += entry.key().content().len() + entry.value().len();
    }
    Ok(told(began, count, bytes as u64))
}

fn look(reader: &mut HFileReader, key: &str, checksum: &mut Hasher) -> Outcome<u64> {
    if reader.seek_to(&Utf8Key::new(key))? != SeekResult::Found {
        return Ok(0);
    }
    let entry = reader.get_key_value()?.ok_or("found, and not there")?;
    checksum.update(entry.value());
    Ok(1)
}

fn told(began: Instant, count: u64, checksum: u64) -> String {
    let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
    format!("ok {milliseconds} {count} {checksum}")
}

/// A file of {u32 size, key}, big-endian.
fn read_keys(file: &str) -> Outcome<Vec<String>> {
    let raw = fs::read(file)?;
    let mut keys = Vec::new();
    let mut rest = raw.as_slice();
    while let Some((size, after)) = rest.split_first_chunk::<4>() {
        let (key, next) = after.split_at(u32::from_be_bytes(*size) as usize);
        keys.push(String::from_utf8(key.to_vec())?);
        rest = next;
    }
    Ok(keys)
}
