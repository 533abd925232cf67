//! A model on loopback that answers chat completions as a test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

/// Its endpoint. `said` makes an answer of the form's name and the prompt; one at a time, until the
/// test process ends.
pub fn serve(said: impl Fn(&str, &str) -> Value + Send + 'static) -> String {
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

fn answer(mut stream: BufReader<TcpStream>, said: &impl Fn(&str, &str) -> Value) -> std::io::Result<()> {
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
    let asked: Value = serde_json::from_slice(&body)?;
    let form = asked["response_format"]["json_schema"]["name"].as_str().unwrap();
    let prompt = asked["messages"][1]["content"].as_str().unwrap();
    let message = json!({ "role": "assistant", "content": said(form, prompt).to_string() });
    let answer = json!({
        "choices": [{ "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1 },
    });
    let answer = answer.to_string();
    let length = answer.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    stream.get_mut().write_all(format!("{head}connection: close\r\n\r\n{answer}").as_bytes())
}
