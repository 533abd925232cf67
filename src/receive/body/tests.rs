//! Decoding of bodies: complete messages in every compression and any chunking; decompression bombs,
//! wrong lengths and truncation end in the right error; memory stays within the limit.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;
use crate::reservation::ByteLimit;

const LIMIT: usize = 1 << 20;

fn limit(bytes: u64) -> ByteLimit {
    ByteLimit::new(bytes)
}

fn compress(coding: Coding, data: &[u8]) -> Vec<u8> {
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

fn decoder(
    coding: Coding,
    length: Option<usize>,
    max_size: usize,
    in_flight: &ByteLimit,
) -> Result<BodyDecoder, BodyError> {
    BodyDecoder::new(coding, length, max_size, u32::MAX, (0, in_flight.reserve_for(&limit(1 << 30))))
}

fn decode(
    coding: Coding,
    length: Option<usize>,
    chunks: &[&[u8]],
    in_flight: &ByteLimit,
) -> Result<Bytes, BodyError> {
    let mut decoder = decoder(coding, length, LIMIT, in_flight)?;
    for chunk in chunks {
        decoder.push(chunk)?;
    }
    decoder.finish().map(|(body, _)| body)
}

const CODINGS: [Coding; 4] = [Coding::Identity, Coding::Gzip, Coding::Zlib, Coding::Zstd];

proptest! {
    #[test]
    fn any_data_in_any_chunks_is_decoded_unchanged(
        data in proptest::collection::vec(any::<u8>(), 0..5000),
        repeat in 1usize..60,
        cut in 1usize..3000,
        coding in prop::sample::select(&CODINGS[..]),
        with_length in any::<bool>(),
    ) {
        let data = data.repeat(repeat);
        let packed = compress(coding, &data);
        let chunks: Vec<&[u8]> = packed.chunks(cut).collect();
        let in_flight = limit(1 << 30);
        let decoded = decode(coding, with_length.then_some(packed.len()), &chunks, &in_flight).unwrap();
        prop_assert!(decoded == data);
        prop_assert_eq!(in_flight.reserved(), 0);
    }

    #[test]
    fn arbitrary_bytes_never_panic_nor_exceed_the_limit(
        data in proptest::collection::vec(any::<u8>(), 0..3000),
        coding in prop::sample::select(&CODINGS[..]),
    ) {
        if let Ok(body) = decode(coding, None, &[&data], &limit(1 << 30)) {
            prop_assert!(body.len() <= LIMIT);
        }
    }
}

#[test]
fn size_limit_is_inclusive() {
    for coding in CODINGS {
        let largest_body = vec![7u8; LIMIT];
        let result = decode(coding, None, &[&compress(coding, &largest_body)], &limit(1 << 30));
        assert_eq!(result.map(|b| b.len()), Ok(LIMIT), "{coding:?}");
        let too_large = vec![7u8; LIMIT + 1];
        let result = decode(coding, None, &[&compress(coding, &too_large)], &limit(1 << 30));
        assert_eq!(result, Err(BodyError::TooLarge { limit: LIMIT }), "{coding:?}");
    }
}

#[test]
fn decompression_bomb_is_rejected_at_the_limit() {
    for coding in [Coding::Gzip, Coding::Zlib, Coding::Zstd] {
        let bomb = compress(coding, &vec![0u8; 32 << 20]);
        assert!(bomb.len() < LIMIT, "{coding:?}: {} bytes", bomb.len());
        let in_flight = limit(1 << 30);
        let mut decoder = decoder(coding, Some(bomb.len()), LIMIT, &in_flight).unwrap();
        assert_eq!(decoder.push(&bomb), Err(BodyError::TooLarge { limit: LIMIT }), "{coding:?}");
        assert!(decoder.out.capacity() < 2 * LIMIT, "{coding:?}: {}", decoder.out.capacity());
    }
}

#[test]
fn truncated_stream_is_malformed() {
    let data: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
    for coding in [Coding::Gzip, Coding::Zlib, Coding::Zstd] {
        let packed = compress(coding, &data);
        for end in [0, 1, 5, packed.len() / 2, packed.len() - 1] {
            let result = decode(coding, None, &[&packed[..end]], &limit(1 << 30));
            assert!(matches!(result, Err(BodyError::Malformed(_))), "{coding:?} cut at {end}: {result:?}");
        }
    }
}

#[test]
fn wrong_checksum_and_trailing_bytes_are_malformed() {
    let mut packed = compress(Coding::Gzip, b"some spans");
    packed.extend_from_slice(b"tail");
    let result = decode(Coding::Gzip, None, &[&packed], &limit(1 << 30));
    assert!(matches!(result, Err(BodyError::Malformed(_))), "{result:?}");
    let mut packed = compress(Coding::Gzip, b"some spans");
    let crc = packed.len() - 6;
    packed[crc] ^= 1;
    let result = decode(Coding::Gzip, None, &[&packed], &limit(1 << 30));
    assert!(matches!(result, Err(BodyError::Malformed(_))), "{result:?}");
}

#[test]
fn concatenated_streams_are_one_body() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let packed = [compress(coding, b"first, "), compress(coding, b"second")].concat();
        assert_eq!(decode(coding, None, &[&packed], &limit(1 << 30)).unwrap(), "first, second", "{coding:?}");
    }
}

#[test]
fn declared_length_allocates_at_most_the_trusted_length_and_is_not_charged() {
    let in_flight = limit(1 << 30);
    let mut decoder = decoder(Coding::Identity, Some(60 << 20), 64 << 20, &in_flight).unwrap();
    decoder.push(b"a few bytes").unwrap();
    assert_eq!(in_flight.reserved(), 22);
    assert_eq!(decoder.out.capacity(), TRUSTED_LENGTH);
}

#[test]
fn body_of_known_length_is_one_allocation_of_that_size() {
    let in_flight = limit(1 << 30);
    let data = vec![1u8; 300_000];
    let mut decoder = decoder(Coding::Identity, Some(data.len()), LIMIT, &in_flight).unwrap();
    let mut address = None;
    for chunk in data.chunks(16_384) {
        decoder.push(chunk).unwrap();
        assert_eq!(*address.get_or_insert(decoder.out.as_ptr()), decoder.out.as_ptr());
    }
    assert_eq!(decoder.out.capacity(), data.len());
}

#[test]
fn decompressor_is_charged_until_the_body_is_complete() {
    let data = vec![7u8; 100_000];
    for (coding, decompressor_bytes) in [(Coding::Gzip, INFLATER_BYTES), (Coding::Zstd, ZSTD_DECODER_BYTES)] {
        let (in_flight, packed) = (limit(1 << 30), compress(coding, &data));
        let mut decoder = decoder(coding, None, LIMIT, &in_flight).unwrap();
        decoder.push(&packed[..1]).unwrap();
        assert_eq!(in_flight.reserved(), decompressor_bytes as u64);
        decoder.push(&packed[1..]).unwrap();
        assert!(in_flight.reserved() >= (decompressor_bytes + data.len()) as u64);
        let (_body, _reservation) = decoder.finish().unwrap();
        assert_eq!(in_flight.reserved(), data.len() as u64);
    }
}

#[test]
fn in_flight_limit_is_shared_released_and_admits_a_single_request() {
    let in_flight = limit(1000);
    let mut alone = decoder(Coding::Identity, None, LIMIT, &in_flight).unwrap();
    alone.push(&[0; 4000]).unwrap();
    let mut second = decoder(Coding::Identity, None, LIMIT, &in_flight).unwrap();
    assert_eq!(second.push(&[0; 10]), Err(BodyError::InFlightLimit));
    drop(second);
    drop(alone);
    assert_eq!(in_flight.reserved(), 0);
    let mut third = decoder(Coding::Identity, None, LIMIT, &in_flight).unwrap();
    third.push(&[0; 10]).unwrap();
}

#[test]
fn headers_and_decompressor_are_charged_before_the_first_byte_of_the_body() {
    for (coding, decompressor_bytes) in [
        (Coding::Identity, 0),
        (Coding::Gzip, INFLATER_BYTES),
        (Coding::Zlib, INFLATER_BYTES),
        (Coding::Zstd, ZSTD_DECODER_BYTES),
    ] {
        let in_flight = limit(600_000);
        // Another peer reserves a byte, since a single reservation may have any size.
        let (_other, peer) = (in_flight.reserve(1), limit(0));
        let open = || BodyDecoder::new(coding, None, LIMIT, 100, (10_000, in_flight.reserve_for(&peer)));
        let mut waiting = Vec::new();
        while let Ok(decoder) = open() {
            waiting.push(decoder);
            assert!(waiting.len() < 100, "without a bound");
        }
        assert_eq!(
            waiting.len(),
            449_999 / (10_000 + decompressor_bytes),
            "three quarters of the limit, {coding:?}"
        );
        drop(waiting);
        assert_eq!(in_flight.reserved(), 1);
    }
}
