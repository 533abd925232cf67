//! Generates `messages.rs` and `../tags.rs` from `proto/otlp.proto`, and compares the checked-in
//! files with the generated text.
//!
//! After a change of `proto/otlp.proto`:
//! `UPDATE_GENERATED=1 cargo test -p verdict-otlp json::generate`. The compiler is protox, so no
//! protoc is needed.

use std::fmt::Write;
use std::path::Path;
use std::{env, error, fs};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

const HEADER: &str = "//! OTLP's messages as data. @generated from proto/otlp.proto by generate.rs.

use super::table::{FieldDescriptor, FieldKind, MessageDescriptor};
";

const TAGS_HEADER: &str = "//! Tags of OTLP's fields. @generated from proto/otlp.proto by json/generate.rs.
//!
//! A tag is a field's number and wire type as they are encoded; bit `n` of `DEFINED` is set for
//! field `n` of the message.

// Only some of the messages are read.
#![allow(dead_code)]
";

#[test]
fn generated_files_match_the_proto_file() -> Result<(), Box<dyn error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let descriptors = protox::compile(["otlp.proto"], [root.join("proto")])?;
    let files = [
        ("crates/otlp/src/json/messages.rs", format!("{HEADER}{}", table(&descriptors)?)),
        ("crates/otlp/src/tags.rs", format!("{TAGS_HEADER}{}", tags(&descriptors)?)),
    ];
    for (path, generated) in files {
        let file = root.join(path);
        if env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&file, &generated)?;
        }
        assert!(
            fs::read_to_string(&file)? == generated,
            "{path} differs from what proto/otlp.proto generates; set UPDATE_GENERATED=1 to update it"
        );
    }
    Ok(())
}

/// A module of tags for every message of package `otlp`.
fn tags(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn error::Error>> {
    let mut out = String::new();
    for file in descriptors.file.iter().filter(|file| file.package() == "otlp") {
        let mut open: Vec<(String, &DescriptorProto)> =
            file.message_type.iter().rev().map(|m| (format!(".otlp.{}", m.name()), m)).collect();
        while let Some((name, message)) = open.pop() {
            open.extend(message.nested_type.iter().map(|m| (format!("{name}.{}", m.name()), m)));
            let defined = message.field.iter().fold(0u32, |all, field| all | 1 << field.number());
            writeln!(out, "\npub(crate) mod {} {{", ident(&name).to_lowercase())?;
            writeln!(out, "    pub(crate) const DEFINED: u32 = {defined:#b};")?;
            for field in &message.field {
                let wire_type = match field.r#type() {
                    Type::Double | Type::Fixed64 | Type::Sfixed64 => 1,
                    Type::Fixed32 => 5,
                    Type::String | Type::Bytes | Type::Message => 2,
                    _ => 0,
                };
                let packed = field.label() == Label::Repeated;
                let tag = field.number() << 3 | if packed { 2 } else { wire_type };
                writeln!(out, "    pub(crate) const {}: u32 = {tag:#04x};", field.name().to_uppercase())?;
            }
            writeln!(out, "}}")?;
        }
    }
    Ok(out)
}

/// A `static` for every message of package `otlp`.
fn table(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn error::Error>> {
    let mut out = String::new();
    for file in descriptors.file.iter().filter(|file| file.package() == "otlp") {
        let mut enums: Vec<(String, &EnumDescriptorProto)> =
            file.enum_type.iter().map(|e| (format!(".otlp.{}", e.name()), e)).collect();
        let mut messages: Vec<(String, &DescriptorProto)> = Vec::new();
        let mut open: Vec<(String, &DescriptorProto)> =
            file.message_type.iter().rev().map(|m| (format!(".otlp.{}", m.name()), m)).collect();
        while let Some((name, message)) = open.pop() {
            enums.extend(message.enum_type.iter().map(|e| (format!("{name}.{}", e.name()), e)));
            open.extend(message.nested_type.iter().map(|m| (format!("{name}.{}", m.name()), m)));
            messages.push((name, message));
        }
        for (name, message) in &messages {
            writeln!(out, "\npub(crate) static {}: MessageDescriptor = MessageDescriptor {{", ident(name))?;
            writeln!(out, "    name: {:?},\n    fields: &[", name.trim_start_matches(".otlp."))?;
            for field in &message.field {
                let enum_type = enums.iter().find(|(name, _)| name == field.type_name()).map(|(_, e)| *e);
                writeln!(out, "        {},", descriptor(field, enum_type)?)?;
            }
            writeln!(out, "    ],\n}};")?;
        }
    }
    Ok(out)
}

/// The `FieldDescriptor` of a field, as Rust code.
fn descriptor(
    field: &FieldDescriptorProto,
    enum_type: Option<&EnumDescriptorProto>,
) -> Result<String, String> {
    let kind = match field.r#type() {
        Type::Bytes if field.name() == "trace_id" => "FieldKind::Id(16)".to_owned(),
        Type::Bytes if field.name().ends_with("span_id") => "FieldKind::Id(8)".to_owned(),
        Type::Message => format!("FieldKind::Message(&{})", ident(field.type_name())),
        Type::Enum => {
            let values = enum_type.ok_or_else(|| format!("no enum {}", field.type_name()))?;
            let values: Vec<_> =
                values.value.iter().map(|v| format!("({:?}, {})", v.name(), v.number())).collect();
            format!("FieldKind::Enum(&[{}])", values.join(", "))
        }
        scalar @ (Type::String
        | Type::Bytes
        | Type::Bool
        | Type::Double
        | Type::Int32
        | Type::Int64
        | Type::Uint32
        | Type::Uint64
        | Type::Sint32
        | Type::Fixed32
        | Type::Fixed64
        | Type::Sfixed64) => format!("FieldKind::{scalar:?}"),
        other => return Err(format!("{}: type {other:?} is not supported", field.name())),
    };
    // A proto3 `optional` is a oneof with one member, which needs no handling.
    let oneof = field.oneof_index.is_some() && !field.proto3_optional();
    Ok(format!(
        "FieldDescriptor {{ number: {}, json: {:?}, snake: {:?}, repeated: {}, oneof: {oneof}, kind: {kind} }}",
        field.number(),
        field.json_name(),
        field.name(),
        field.label() == Label::Repeated,
    ))
}

/// `.otlp.Span.Event` as `SPAN_EVENT`.
fn ident(name: &str) -> String {
    let mut out = String::new();
    let mut previous = '.';
    for c in name.trim_start_matches(".otlp.").chars() {
        if c.is_ascii_uppercase() && previous != '.' {
            out.push('_');
        }
        out.push(if c == '.' { '_' } else { c.to_ascii_uppercase() });
        previous = c;
    }
    out
}
