use proptest::prelude::*;

use super::*;

fn policy(text: &str) -> RetentionPolicy {
    text.parse().expect(text)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
}

fn left(policy: &RetentionPolicy, taken: &[(Timestamp, usize)], now: Timestamp) -> Vec<(Timestamp, usize)> {
    let spent = policy.spent(taken, now);
    taken.iter().filter(|(_, key)| !spent.contains(key)).copied().collect()
}

fn any_retention_policy() -> impl Strategy<Value = RetentionPolicy> {
    let rule = (1..6u32, 10..5000u64)
        .prop_map(|(count, seconds)| RetentionRule { count, length: Duration::from_secs(seconds) });
    (0..4u32, prop::collection::vec(rule, 0..4))
        .prop_filter("it keeps something", |(newest, rules)| newest + rules.len() as u32 > 0)
        .prop_map(|(newest, rules)| RetentionPolicy { newest, rules })
}

fn any_taken() -> impl Strategy<Value = Vec<(Timestamp, usize)>> {
    let times = prop::collection::vec(0..30_000u64, 1..60);
    times.prop_map(|times| times.into_iter().enumerate().map(|(key, time)| (at(time), key)).collect())
}

proptest! {
    #[test]
    fn the_newest_stays_and_no_more_than_the_sum_of_the_counts(
        policy in any_retention_policy(), taken in any_taken(), now in 0..40_000u64,
    ) {
        let kept = left(&policy, &taken, at(now));
        prop_assert_eq!(kept.iter().max(), taken.iter().max());
        prop_assert!(kept.len() <= policy.total());
    }

    #[test]
    fn asking_twice_takes_nothing_more(policy in any_retention_policy(), taken in any_taken(), now in 0..40_000u64) {
        let kept = left(&policy, &taken, at(now));
        prop_assert_eq!(policy.spent(&kept, at(now)), Vec::<usize>::new());
    }

    #[test]
    fn every_interval_of_a_step_keeps_its_newest_whatever_was_thinned_before(
        policy in any_retention_policy(), mut times in prop::collection::vec(0..30_000u64, 1..60),
    ) {
        times.sort_unstable();
        let mut kept = Vec::new();
        for (key, time) in times.iter().enumerate() {
            kept.push((at(*time), key));
            kept = left(&policy, &kept, at(*time));
        }
        let now = at(*times.last().expect("one"));
        for RetentionRule { count, length } in &policy.rules {
            let interval = |at: Timestamp| u128::from(at.as_millis()) / length.as_millis();
            for back in 0..u128::from(*count) {
                let wanted = interval(now) - back;
                let newest = times.iter().map(|time| at(*time)).filter(|at| interval(*at) == wanted).max();
                let found = kept.iter().map(|(at, _)| *at).filter(|at| interval(*at) == wanted).max();
                prop_assert_eq!(found, newest, "{} intervals of {:?} ago", back, length);
            }
        }
    }

    #[test]
    fn a_retention_policy_is_read_as_it_is_written(policy in any_retention_policy()) {
        prop_assert_eq!(policy.to_string().parse::<RetentionPolicy>(), Ok(policy));
    }
}

#[test]
fn ten_days_of_one_every_ten_minutes_leave_hours_and_days() {
    let policy = RetentionPolicy::default();
    let mut kept = Vec::new();
    for key in 0..10 * 144 {
        let now = at(key as u64 * 600);
        kept.push((now, key));
        kept = left(&policy, &kept, now);
    }
    let now = at((10 * 144 - 1) * 600);
    let older_than = |hours: u64| kept.iter().filter(|(at, _)| now.since(*at).as_secs() > hours * 3600).count();
    assert_eq!((older_than(24), older_than(5 * 24)), (5, 1));
    assert!((28..=34).contains(&kept.len()), "{}", kept.len());
}

#[test]
fn what_a_retention_policy_is_written_as() {
    for text in ["3,24x1h,7x1d", "1", "5x90s", "2,1x10m,1x365d"] {
        assert_eq!(policy(text).to_string(), text);
    }
    assert_eq!(policy(" 24x60m , 3").to_string(), "3,24x1h");
    assert_eq!(RetentionPolicy::default(), policy("3,24x1h,7x1d"));
    let wrong = |text: &str| text.parse::<RetentionPolicy>().expect_err(text);
    assert_eq!(wrong(""), RetentionPolicyError::Part(String::new()));
    assert_eq!(wrong("3,24xh"), RetentionPolicyError::Part("24xh".into()));
    assert_eq!(wrong("+4"), RetentionPolicyError::Part("+4".into()));
    assert_eq!(wrong("24x5y"), RetentionPolicyError::Part("24x5y".into()));
    assert_eq!(wrong("0"), RetentionPolicyError::Count("0".into()));
    assert_eq!(wrong("1001x1h"), RetentionPolicyError::Count("1001x1h".into()));
    assert_eq!(wrong("3x9s"), RetentionPolicyError::Length("3x9s".into()));
    assert_eq!(wrong("3x99999999999999999999d"), RetentionPolicyError::Length("3x99999999999999999999d".into()));
    assert_eq!(wrong("3,4"), RetentionPolicyError::Twice("4".into()));
    assert_eq!(wrong(&["1x1h"; 9].join(",")), RetentionPolicyError::Steps(9));
}

#[test]
fn a_clock_that_was_set_back_costs_no_more_than_the_retention_policy_says() {
    let policy = policy("2x1h");
    let taken: Vec<_> = [0, 3600, 90 * 3600].into_iter().map(at).zip(0..).collect();
    assert_eq!(policy.spent(&taken, at(3600)), [0], "the one from the future counts as any other");
}
