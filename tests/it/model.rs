//! A model on loopback that answers chat completions as a test says, and one that ranks texts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// Its endpoint. `said` makes an answer of the form's name and the prompt; one at a time, until the
/// test process ends.
pub fn serve(said: impl Fn(&str, &str) -> Value + Send + 'static) -> String {
    serve_for(1, said)
}

/// As [`serve`]; each prompt has so many tokens.
pub fn serve_for(tokens: u64, said: impl Fn(&str, &str) -> Value + Send + 'static) -> String {
    listen(move |asked| {
        let form = asked["response_format"]["json_schema"]["name"].as_str().unwrap();
        let prompt = asked["messages"][1]["content"].as_str().unwrap();
        let message = json!({ "role": "assistant", "content": said(form, prompt).to_string() });
        json!({
            "choices": [{ "message": message, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": tokens, "completion_tokens": 1 },
        })
    })
}

/// The endpoint of a cross-encoder: `fit` says how well a text fits a query. Best come first.
pub fn rank(fit: impl Fn(&str, &str) -> f64 + Send + 'static) -> String {
    listen(move |asked| {
        let texts = asked["documents"].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
        let query = asked["query"].as_str().unwrap();
        let mut fits: Vec<(usize, f64)> = texts.map(|text| fit(query, text)).enumerate().collect();
        fits.sort_by(|a, b| b.1.total_cmp(&a.1));
        let results: Vec<Value> =
            fits.into_iter().map(|(i, fit)| json!({ "index": i, "relevance_score": fit })).collect();
        json!({ "results": results, "usage": { "total_tokens": 1 } })
    })
}

fn listen(said: impl Fn(&Value) -> Value + Send + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever asked may have gone, or been killed.
            let _ = answer(BufReader::new(stream), &said);
        }
    });
    format!("http://{address}/v1")
}

fn answer(mut stream: BufReader<TcpStream>, said: &impl Fn(&Value) -> Value) -> std::io::Result<()> {
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
    let answer = said(&serde_json::from_slice(&body)?).to_string();
    let length = answer.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    stream.get_mut().write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes())
}
