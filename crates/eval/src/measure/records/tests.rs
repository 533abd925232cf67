//! Tests of the records that results contain.

use super::*;

fn records_of(text: &str) -> Option<Records> {
    read(text, &KeyNames::default())
}

fn fields(text: &str) -> Vec<(String, String)> {
    let records = records_of(text).unwrap_or_default().records;
    records.iter().flat_map(|r| &r.fields).map(|f| (f.name.join(" "), f.shown().to_owned())).collect()
}

fn pair(name: &str, shown: &str) -> (String, String) {
    (name.to_owned(), shown.to_owned())
}

#[test]
fn one_record_is_read_from_any_form() {
    let expected = [pair("order id", "A-17"), pair("paid", "false"), pair("total", "12.5")];
    for text in [
        r#"{"orderId":"A-17","paid":false,"total":12.5}"#,
        r#"{"data":"{\"order_id\":\"A-17\",\"paid\":false,\"total\":12.5}"}"#,
        r#"{"content":[{"text":"order_id: A-17\npaid: false\ntotal: 12.5"}],"next":null}"#,
        "order id: A-17\npaid: false\ntotal: 12.5",
        "| order_id | paid | total |\n|---|---|---|\n| A-17 | false | 12.5 |",
        "order_id  paid   total\nA-17      false  12.5",
        "order_id,paid,total\nA-17,false,12.5",
    ] {
        assert_eq!(fields(text), expected, "{text}");
    }
}

#[test]
fn rows_have_the_names_of_the_list_before_them() {
    let records =
        records_of(r#"{"columns":["region","rev"],"rows":[["East",874.5],["West",1204.25]],"row_count":2}"#)
            .unwrap();
    let rows: Vec<_> = records.records.iter().filter(|record| record.list == Some(1)).collect();
    let shown =
        rows.iter().map(|row| row.fields.iter().map(|f| (f.name.join(" "), f.shown().to_owned())).collect());
    let expected = [
        vec![pair("region", "East"), pair("rev", "874.5")],
        vec![pair("region", "West"), pair("rev", "1204.25")],
    ];
    assert_eq!(shown.collect::<Vec<Vec<_>>>(), expected);
    // Three texts are no names of two columns.
    let other = records_of(r#"{"tags":["a","b","c"],"points":[[1,2],[3,4]]}"#).unwrap();
    assert!(other.records.iter().all(|record| record.list.is_none()));
}

#[test]
fn prose_and_code_have_no_records() {
    for text in [
        "The order was shipped. Note: it is late.",
        "fn main() {\n    let x = 1;\n}",
        "Dear all,\nthe meeting, as agreed, is off.\nBest, Kim",
        "",
        "{broken",
    ] {
        assert!(fields(text).is_empty(), "{text}: {:?}", fields(text));
    }
}

#[test]
fn lists_have_lengths_and_columns_have_sums() {
    let records =
        records_of(r#"{"total":3,"items":[{"k":"a","n":2},{"k":"b","n":5},{"k":"a","n":4}]}"#).unwrap();
    assert_eq!((records.lists[0].name.concat(), records.lists[0].len), ("items".to_owned(), 3));
    assert!(
        records.aggregates().contains(&11.0) && records.aggregates().contains(&6.0),
        "{:?}",
        records.aggregates()
    );
    assert!(records_of("[1, 2, 6]").unwrap().aggregates().contains(&3.0));
}

#[test]
fn hostile_structures_are_bounded() {
    let wide = format!("[{}]", vec![r#"{"a":1,"b":"x"}"#; 5000].join(","));
    let records = records_of(&wide).unwrap();
    assert_eq!((records.records.len(), records.lists[0].len), (data::MAX_RECORDS, 5000));
    let mut nested = "1".to_owned();
    (0..10).for_each(|_| nested = serde_json::json!({ "a": nested }).to_string());
    assert!(records_of(&nested).is_some());
    assert!(records_of(&"a: b\n".repeat(100_000)).is_none());
}

#[test]
fn rows_below_a_header_are_records() {
    let range = r#"[["Branch","May","Staff"],["Lund",310,"4"],["Umea",290.5,"3"]]"#;
    let expected = [
        pair("branch", "Lund"),
        pair("may", "310"),
        pair("staff", "4"),
        pair("branch", "Umea"),
        pair("may", "290.5"),
        pair("staff", "3"),
    ];
    assert_eq!(fields(range), expected);
    let records = records_of(range).unwrap();
    assert_eq!((records.lists.len(), records.lists[0].len), (1, 2));
    assert!(records.aggregates().contains(&300.25) && records.aggregates().contains(&7.0));
    // Without numbers in all other rows the first row is no header.
    for pairs in
        [r#"[["Lund","Sweden"],["Oslo","Norway"]]"#, r#"[["Lund",1],["Oslo",2]]"#, r#"[["a","b"],[1]]"#]
    {
        assert!(fields(pairs).is_empty(), "{pairs}");
    }
}

#[test]
fn numbers_are_shown_as_json_writes_them() {
    let numbers = ["0", "-3", "2.5", "2.0", "-0.0", "9007199254740991", "9007199254740993", "1e300"];
    for number in numbers {
        let expected = serde_json::from_str::<serde_json::Value>(number).unwrap().to_string();
        assert_eq!(fields(&format!(r#"{{"n": {number}}}"#)), [pair("n", &expected)]);
    }
}
