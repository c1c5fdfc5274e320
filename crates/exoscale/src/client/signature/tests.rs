//! Requests with known signatures.

use super::*;

const KEY: &str = "EXO00000000000000000000test";
const SECRET: &str = "sEcr3t-Test-Vector-0123456789abcdefABCDEF";
const EXPIRES: i64 = 1_767_225_600;
const LB: &str = "/v2/load-balancer/11111111-2222-4333-8444-555555555555";

fn signed<'a>(method: &'a str, path: &'a str, query: &'a str, body: &'a str) -> Signed<'a> {
    let body = body.as_bytes();
    Signed {
        method,
        path,
        query,
        body,
        expires: EXPIRES,
    }
}

fn signature(request: &Signed<'_>) -> String {
    let header = request.header(KEY, SECRET);
    let (_, signature) = header.split_once("signature=").unwrap();
    signature.to_owned()
}

fn message(request: &Signed<'_>) -> String {
    String::from_utf8(request.message()).unwrap()
}

#[test]
fn a_request_without_query_and_body_is_signed_over_empty_segments() {
    let request = signed("GET", "/v2/zone", "", "");
    assert_eq!(message(&request), "GET /v2/zone\n\n\n\n1767225600");
    assert_eq!(
        signature(&request),
        "JZDtsVEO6sZD2rBd+i3vY80R+ZRfcBehuGova9TgMaE="
    );
    let header = "EXO2-HMAC-SHA256 credential=EXO00000000000000000000test,expires=1767225600,\
                  signature=JZDtsVEO6sZD2rBd+i3vY80R+ZRfcBehuGova9TgMaE=";
    assert_eq!(request.header(KEY, SECRET), header);
}

#[test]
fn the_path_is_signed_with_its_prefix() {
    let request = signed("GET", LB, "", "");
    assert_eq!(
        signature(&request),
        "i5PXLAq7tuAjW1BRD5eEEVvh3ML33Sn7SAhTBeRIfr4="
    );
    let path = format!("{LB}/service/66666666-7777-4888-8999-aaaaaaaaaaaa");
    let request = signed("DELETE", &path, "", "");
    assert_eq!(
        signature(&request),
        "P+aGT7nPqjfwMkTTmu0cEi6WmQdHCZOtmUIlhyvwksQ="
    );
}

#[test]
fn a_body_is_signed_byte_by_byte() {
    let body = r#"{"name":"k8s-0a1b2c3d-0000-4000-8000-000000000001"}"#;
    let request = signed("POST", "/v2/load-balancer", "", body);
    assert_eq!(
        signature(&request),
        "8UUVtt8dculgtWnmBZbKX3kfGKJGCE85Ciyt785uldE="
    );
    let request = signed("PUT", LB, "", r#"{"description":"déjà vu","name":"web"}"#);
    assert_eq!(
        signature(&request),
        "dNdFG0O+JVpNUI35mYbKqI3NKMDFC9ewy2uNK0k8PnE="
    );
}

#[test]
fn parameters_are_signed_in_the_order_of_their_names() {
    let query = "manager-type=instance-pool&manager-id=11111111-2222-4333-8444-555555555555";
    let request = signed("GET", "/v2/instance", query, "");
    let header = "EXO2-HMAC-SHA256 credential=EXO00000000000000000000test,\
                  signed-query-args=manager-id;manager-type,expires=1767225600,\
                  signature=pixhj/C8bNtAzrX1uAYvb9RgKTTS/NTq2cpJ0NJcCWA=";
    assert_eq!(request.header(KEY, SECRET), header);
}

#[test]
fn parameters_are_decoded_and_the_path_is_not() {
    let path = "/v2/sks-cluster-deprecated-resources/a%20b";
    for query in ["b=2&a=1&c=x%20y", "b=2&a=1&c=x+y"] {
        let request = signed("GET", path, query, "");
        assert_eq!(
            message(&request),
            format!("GET {path}\n\n12x y\n\n1767225600")
        );
        assert_eq!(
            signature(&request),
            "M0TtsJutuzHrPPIJWXx5SbyCEbaqd7nNnTtb0Aen7Is="
        );
    }
}

#[test]
fn a_parameter_that_occurs_twice_is_not_signed() {
    let request = signed("GET", "/v2/instance", "a=1&b=2&a=3", "");
    assert_eq!(message(&request), "GET /v2/instance\n\n2\n\n1767225600");
    assert!(
        request
            .header(KEY, SECRET)
            .contains(",signed-query-args=b,")
    );
}
