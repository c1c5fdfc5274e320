use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> ExpressionSpec {
    ExpressionSpec {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn parse(expressions: Vec<ExpressionSpec>) -> Result<LabelSelector, SelectorError> {
    LabelSelector::parse(&SelectorSpec {
        match_labels: Labels::new(),
        match_expressions: expressions,
    })
}

#[test]
fn an_empty_selector_matches_everything() {
    let selector = parse(vec![]).unwrap();
    assert!(selector.matches(&labels(&[])));
    assert!(selector.matches(&labels(&[("a", "b")])));
    assert_eq!(selector.to_string(), "everything");
}

#[test]
fn every_operator_matches_by_its_own_rule() {
    let cases = [
        ("In", vec!["x", "y"], [true, false, false]),
        ("NotIn", vec!["x", "y"], [false, true, true]),
        ("Exists", vec![], [true, true, false]),
        ("DoesNotExist", vec![], [false, false, true]),
    ];
    for (operator, values, expected) in cases {
        let selector = parse(vec![expression("k", operator, &values)]).unwrap();
        let found = [
            labels(&[("k", "x")]),
            labels(&[("k", "z")]),
            labels(&[("j", "x")]),
        ]
        .map(|labels| selector.matches(&labels));
        assert_eq!(found, expected, "{operator}");
    }
}

#[test]
fn labels_and_expressions_must_all_match() {
    let selector = LabelSelector::parse(&SelectorSpec {
        match_labels: labels(&[("app", "web")]),
        match_expressions: vec![
            expression("tier", "In", &["a", "b"]),
            expression("off", "DoesNotExist", &[]),
        ],
    })
    .unwrap();
    assert!(selector.matches(&labels(&[("app", "web"), ("tier", "a")])));
    assert!(!selector.matches(&labels(&[("app", "web")])));
    assert!(!selector.matches(&labels(&[("app", "api"), ("tier", "a")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "a"), ("off", "")])));
    assert_eq!(selector.to_string(), "app=web, tier in (a, b), !off");
}

#[test]
fn each_mistake_is_named_with_what_would_be_right() {
    let key = || "k".to_owned();
    let cases = [
        (
            vec![expression("", "Exists", &[])],
            SelectorError::EmptyKey,
            "name",
        ),
        (
            vec![expression("k", "in", &["x"])],
            SelectorError::UnknownOperator {
                key: key(),
                operator: "in".into(),
            },
            "NotIn",
        ),
        (
            vec![expression("k", "NotIn", &[])],
            SelectorError::ValuesMissing {
                key: key(),
                operator: Operator::NotIn,
            },
            "DoesNotExist",
        ),
        (
            vec![expression("k", "Exists", &["x"])],
            SelectorError::ValuesUnexpected {
                key: key(),
                operator: Operator::Exists,
                values: vec!["x".into()],
            },
            "use In",
        ),
        (
            vec![expression("k", "In", &["x", "x"])],
            SelectorError::DuplicateValue {
                key: key(),
                value: "x".into(),
            },
            "\"x\"",
        ),
        (
            vec![
                expression("k", "In", &["x", "y"]),
                expression("k", "In", &["y", "x"]),
            ],
            SelectorError::DuplicateExpression {
                expression: Expression::In(key(), BTreeSet::from(["x".into(), "y".into()])),
            },
            "one of the two",
        ),
    ];
    for (expressions, expected, remedy) in cases {
        let error = parse(expressions).unwrap_err();
        assert_eq!(error, expected);
        assert!(
            error.remedy().contains(remedy),
            "{error}: {}",
            error.remedy()
        );
    }
}

#[test]
fn an_empty_key_among_match_labels_is_refused() {
    let spec = SelectorSpec {
        match_labels: labels(&[("", "x")]),
        match_expressions: Vec::new(),
    };
    assert_eq!(LabelSelector::parse(&spec), Err(SelectorError::EmptyKey));
}
