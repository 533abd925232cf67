//! A model on loopback that answers chat completions with a test's function, and one that ranks texts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// The endpoint of a model. `respond` computes an answer from the form's name and the prompt; one at a time,
/// until the test process ends.
pub fn serve(respond: impl Fn(&str, &str) -> Value + Send + 'static) -> String {
    serve_for(1, respond)
}

/// Like [`serve`]; each prompt is reported to have `tokens` tokens.
pub fn serve_for(tokens: u64, respond: impl Fn(&str, &str) -> Value + Send + 'static) -> String {
    listen(move |request| {
        let form = request["response_format"]["json_schema"]["name"].as_str().unwrap();
        let prompt = request["messages"][1]["content"].as_str().unwrap();
        let message = json!({ "role": "assistant", "content": respond(form, prompt).to_string() });
        json!({
            "choices": [{ "message": message, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": tokens, "completion_tokens": 1 },
        })
    })
}

/// Like [`serve`]; `respond` receives the whole request instead of the prompt.
pub fn serve_requests(respond: impl Fn(&str, &Value) -> Value + Send + 'static) -> String {
    listen(move |request| {
        let form = request["response_format"]["json_schema"]["name"].as_str().unwrap();
        let message = json!({ "role": "assistant", "content": respond(form, request).to_string() });
        json!({ "choices": [{ "message": message, "finish_reason": "stop" }] })
    })
}

/// The endpoint of an embedding model: `embed` gives the vector of a text. Vectors are in reverse order.
pub fn embed(embed: impl Fn(&str) -> Vec<f64> + Send + 'static) -> String {
    listen(move |request| {
        let texts = request["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
        let data = texts.enumerate().map(|(i, text)| json!({ "index": i, "embedding": embed(text) }));
        let mut data: Vec<Value> = data.collect();
        data.reverse();
        json!({ "data": data, "usage": { "total_tokens": 1 } })
    })
}

/// The endpoint of a cross-encoder: `fit` scores a text for a query. Results are sorted by score, best first.
pub fn rank(fit: impl Fn(&str, &str) -> f64 + Send + 'static) -> String {
    listen(move |request| {
        let texts = request["documents"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
        let query = request["query"].as_str().unwrap();
        let mut scores: Vec<(usize, f64)> = texts.map(|text| fit(query, text)).enumerate().collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        let results: Vec<Value> =
            scores.into_iter().map(|(i, fit)| json!({ "index": i, "relevance_score": fit })).collect();
        json!({ "results": results, "usage": { "total_tokens": 1 } })
    })
}

fn listen(respond: impl Fn(&Value) -> Value + Send + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client may have disconnected.
            let _ = answer(BufReader::new(stream), &respond);
        }
    });
    format!("http://{address}/v1")
}

fn answer(mut stream: BufReader<TcpStream>, respond: &impl Fn(&Value) -> Value) -> std::io::Result<()> {
    let (mut length, mut line) = (0, String::new());
    while stream.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let answer = respond(&serde_json::from_slice(&body)?).to_string();
    let length = answer.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    stream.get_mut().write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes())
}
