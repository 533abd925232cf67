//! Unpacking: whole messages in every compression and any cut of pieces; bombs, lies and
//! truncation end in the right refusal, and memory stays within what came and the limit.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1 << 20;

fn room(limit: u64) -> Room {
    Room { held: Gauge::default(), limit }
}

fn pack(coding: Coding, data: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Identity => data.to_vec(),
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Zstd => zstd::encode_all(data, 1).unwrap(),
    }
}

fn unpack(coding: Coding, stated: Option<usize>, pieces: &[&[u8]], room: &Room) -> Result<Bytes, BodyError> {
    let mut unpack = Unpack::new(coding, stated, LIMIT, room.hold())?;
    for piece in pieces {
        unpack.feed(piece)?;
    }
    unpack.finish().map(|(body, _)| body)
}

const CODINGS: [Coding; 4] = [Coding::Identity, Coding::Gzip, Coding::Zlib, Coding::Zstd];

proptest! {
    #[test]
    fn any_data_cut_anywhere_comes_out_as_it_went_in(
        data in proptest::collection::vec(any::<u8>(), 0..5000),
        repeat in 1usize..60,
        cut in 1usize..3000,
        coding in prop::sample::select(&CODINGS[..]),
        stated in any::<bool>(),
    ) {
        let data = data.repeat(repeat);
        let packed = pack(coding, &data);
        let pieces: Vec<&[u8]> = packed.chunks(cut).collect();
        let room = room(1 << 30);
        let got = unpack(coding, stated.then_some(packed.len()), &pieces, &room).unwrap();
        prop_assert!(got == data);
        prop_assert_eq!(room.held.get(), 0);
    }

    #[test]
    fn arbitrary_bytes_never_panic_nor_exceed_the_limit(
        data in proptest::collection::vec(any::<u8>(), 0..3000),
        coding in prop::sample::select(&CODINGS[..]),
    ) {
        if let Ok(body) = unpack(coding, None, &[&data], &room(1 << 30)) {
            prop_assert!(body.len() <= LIMIT);
        }
    }
}

#[test]
fn the_limit_itself_fits_and_one_byte_more_does_not() {
    for coding in CODINGS {
        let fits = vec![7u8; LIMIT];
        let got = unpack(coding, None, &[&pack(coding, &fits)], &room(1 << 30));
        assert_eq!(got.map(|b| b.len()), Ok(LIMIT), "{coding:?}");
        let over = vec![7u8; LIMIT + 1];
        let got = unpack(coding, None, &[&pack(coding, &over)], &room(1 << 30));
        assert_eq!(got, Err(BodyError::TooLarge { limit: LIMIT }), "{coding:?}");
    }
}

#[test]
fn a_bomb_is_refused_once_the_limit_is_reached_not_inflated_to_its_end() {
    for coding in [Coding::Gzip, Coding::Zlib, Coding::Zstd] {
        let bomb = pack(coding, &vec![0u8; 32 << 20]);
        assert!(bomb.len() < LIMIT, "{coding:?}: {} bytes", bomb.len());
        let room = room(1 << 30);
        let mut unpack = Unpack::new(coding, Some(bomb.len()), LIMIT, room.hold()).unwrap();
        assert_eq!(unpack.feed(&bomb), Err(BodyError::TooLarge { limit: LIMIT }), "{coding:?}");
        assert!(unpack.out.capacity() < 2 * LIMIT, "{coding:?}: {}", unpack.out.capacity());
    }
}

#[test]
fn a_truncated_stream_is_malformed_wherever_it_is_cut() {
    let data: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    for coding in [Coding::Gzip, Coding::Zlib, Coding::Zstd] {
        let packed = pack(coding, &data);
        for end in [0, 1, 5, packed.len() / 2, packed.len() - 1] {
            let got = unpack(coding, None, &[&packed[..end]], &room(1 << 30));
            assert!(matches!(got, Err(BodyError::Malformed(_))), "{coding:?} cut at {end}: {got:?}");
        }
    }
}

#[test]
fn a_wrong_checksum_and_trailing_bytes_are_malformed() {
    let mut packed = pack(Coding::Gzip, b"some spans");
    packed.extend_from_slice(b"tail");
    let got = unpack(Coding::Gzip, None, &[&packed], &room(1 << 30));
    assert!(matches!(got, Err(BodyError::Malformed(_))), "{got:?}");
    let mut packed = pack(Coding::Gzip, b"some spans");
    let crc = packed.len() - 6;
    packed[crc] ^= 1;
    let got = unpack(Coding::Gzip, None, &[&packed], &room(1 << 30));
    assert!(matches!(got, Err(BodyError::Malformed(_))), "{got:?}");
}

#[test]
fn streams_that_follow_one_another_are_one_body() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let packed = [pack(coding, b"first, "), pack(coding, b"second")].concat();
        assert_eq!(unpack(coding, None, &[&packed], &room(1 << 30)).unwrap(), "first, second", "{coding:?}");
    }
}

#[test]
fn a_length_that_is_only_claimed_holds_no_more_than_is_believed() {
    let room = room(1 << 30);
    let mut unpack = Unpack::new(Coding::Identity, Some(60 << 20), 64 << 20, room.hold()).unwrap();
    unpack.feed(b"a few bytes").unwrap();
    assert_eq!(usize::try_from(room.held.get()).unwrap(), BELIEVED);
    assert_eq!(unpack.out.capacity(), BELIEVED);
}

#[test]
fn a_body_of_known_length_is_one_allocation_of_that_size() {
    let room = room(1 << 30);
    let data = vec![1u8; 300_000];
    let mut unpack = Unpack::new(Coding::Identity, Some(data.len()), LIMIT, room.hold()).unwrap();
    let mut at = None;
    for piece in data.chunks(16_384) {
        unpack.feed(piece).unwrap();
        assert_eq!(*at.get_or_insert(unpack.out.as_ptr()), unpack.out.as_ptr());
    }
    assert_eq!(unpack.out.capacity(), data.len());
}

#[test]
fn the_room_is_shared_given_back_and_never_too_small_for_one_request_alone() {
    let room = room(1000);
    let mut alone = Unpack::new(Coding::Identity, None, LIMIT, room.hold()).unwrap();
    alone.feed(&[0; 4000]).unwrap();
    let mut second = Unpack::new(Coding::Identity, None, LIMIT, room.hold()).unwrap();
    assert_eq!(second.feed(&[0; 10]), Err(BodyError::NoRoom));
    drop(second);
    drop(alone);
    assert_eq!(room.held.get(), 0);
    let mut third = Unpack::new(Coding::Identity, None, LIMIT, room.hold()).unwrap();
    third.feed(&[0; 10]).unwrap();
}
