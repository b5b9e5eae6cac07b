"""Creating sandboxes: every option, and what it leads to."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from e2b import AuthenticationException, InvalidArgumentException, SandboxException

from support.guest import boot_id, output
from support.surface import Surface

Create = Callable[..., Any]


def lifetime(sandbox: Any) -> float:
    info = sandbox.get_info()
    return float((info.end_at - info.started_at).total_seconds())


def test_a_new_sandbox_runs_the_template_base(create: Create) -> None:
    sandbox = create()
    info = sandbox.get_info()
    assert re.fullmatch("[a-z0-9]+", sandbox.sandbox_id)
    assert (info.sandbox_id, info.name, info.state.value) == (sandbox.sandbox_id, "base", "running")
    assert info.cpu_count >= 1
    assert info.memory_mb >= 128
    assert output(sandbox, "echo ready") == "ready"


def test_a_sandbox_can_be_created_from_a_template_by_its_name(create: Create) -> None:
    assert create(template="base").get_info().name == "base"


def test_a_sandbox_can_be_created_from_a_template_by_its_id(create: Create, sandbox: Any) -> None:
    template = sandbox.get_info().template_id
    assert create(template).get_info().template_id == template


def test_a_sandbox_can_be_created_from_a_template_with_the_default_tag(create: Create) -> None:
    assert output(create("base:default"), "echo ready") == "ready"


def test_a_sandbox_lives_for_five_minutes_unless_told_otherwise(api: Surface) -> None:
    with api.Sandbox.create() as sandbox:
        assert lifetime(sandbox) == pytest.approx(300, abs=5)


def test_a_sandbox_lives_as_long_as_its_timeout(create: Create) -> None:
    assert lifetime(create(timeout=77)) == pytest.approx(77, abs=2)


def test_times_of_a_new_sandbox_are_around_now(create: Create) -> None:
    info = create().get_info()
    assert abs((datetime.now(UTC) - info.started_at).total_seconds()) < 60


def test_the_end_of_a_block_kills_its_sandbox(api: Surface) -> None:
    with api.Sandbox.create() as sandbox:
        assert sandbox.is_running()
    assert not sandbox.is_running()


def test_metadata_are_returned(create: Create) -> None:
    metadata = {"user": "one", "purpose": "with spaces & signs = ü", "empty": ""}
    assert create(metadata=metadata).get_info().metadata == metadata


def test_variables_are_set_for_every_command(create: Create) -> None:
    sandbox = create(envs={"FIRST": "one", "SECOND": "with 'quotes' and $signs"})
    assert output(sandbox, 'echo "$FIRST, $SECOND"') == "one, with 'quotes' and $signs"
    assert output(sandbox, "echo $FIRST", user="root") == "one"


def test_a_variable_of_a_command_overrides_that_of_the_sandbox(create: Create) -> None:
    sandbox = create(envs={"NAME": "sandbox"})
    assert output(sandbox, "echo $NAME", envs={"NAME": "command"}) == "command"
    assert output(sandbox, "echo $NAME") == "sandbox"


def test_a_command_can_tell_that_it_is_in_a_sandbox_and_in_which(sandbox: Any) -> None:
    told = output(sandbox, "echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID").split()
    assert told == ["true", sandbox.sandbox_id, sandbox.get_info().template_id]


@pytest.mark.parametrize("secure", [True, False])
def test_the_option_secure_is_accepted(create: Create, secure: bool) -> None:
    assert output(create(secure=secure), "echo ready") == "ready"


@pytest.mark.parametrize("allowed", [True, False])
def test_access_to_the_internet_is_shown(create: Create, allowed: bool) -> None:
    assert create(allow_internet_access=allowed).get_info().allow_internet_access is allowed


def test_access_to_the_internet_that_was_not_chosen_is_not_shown_as_denied(sandbox: Any) -> None:
    assert sandbox.get_info().allow_internet_access in (None, True)


@pytest.mark.parametrize("on_timeout", ["kill", "pause", {"action": "kill"}, {"action": "pause"}])
def test_the_action_on_timeout_is_shown(create: Create, on_timeout: Any) -> None:
    action = on_timeout if isinstance(on_timeout, str) else on_timeout["action"]
    shown = create(lifecycle={"on_timeout": on_timeout}).get_info().lifecycle
    assert shown["on_timeout"] == action
    assert shown["auto_resume"] is False


def test_a_sandbox_is_killed_on_timeout_unless_told_otherwise(sandbox: Any) -> None:
    assert sandbox.get_info().lifecycle == {"on_timeout": "kill", "auto_resume": False}


@pytest.mark.parametrize("auto_resume", [True, False])
def test_automatic_resuming_is_shown(create: Create, auto_resume: bool) -> None:
    shown = create(lifecycle={"on_timeout": "pause", "auto_resume": auto_resume}).get_info().lifecycle
    assert shown == {"on_timeout": "pause", "auto_resume": auto_resume}


@pytest.mark.needs("SandboxOnTimeoutPause.mode")
@pytest.mark.parametrize("mode", ["full", "filesystem"])
def test_a_mode_of_pausing_on_timeout_is_accepted(create: Create, mode: str) -> None:
    sandbox = create(lifecycle={"on_timeout": {"action": "pause", "mode": mode}})
    assert sandbox.get_info().lifecycle["on_timeout"] == "pause"


@pytest.mark.parametrize("keep_memory", [True, False])
def test_the_former_name_of_the_mode_is_accepted(create: Create, keep_memory: bool) -> None:
    sandbox = create(lifecycle={"on_timeout": {"action": "pause", "keep_memory": keep_memory}})
    assert sandbox.get_info().lifecycle["on_timeout"] == "pause"


def test_files_only_and_automatic_resuming_exclude_each_other(api: Surface) -> None:
    lifecycle = {"on_timeout": {"action": "pause", "keep_memory": False}, "auto_resume": True}
    with pytest.raises(InvalidArgumentException):
        api.Sandbox.create(lifecycle=lifecycle)


def test_automatic_resuming_needs_pausing(api: Surface) -> None:
    with pytest.raises(InvalidArgumentException):
        api.Sandbox.create(lifecycle={"on_timeout": "kill", "auto_resume": True})


def test_a_logger_is_told_of_requests(create: Create, caplog: Any) -> None:
    logger = logging.getLogger("cases.create")
    with caplog.at_level(logging.INFO, logger="cases.create"):
        sandbox = create(logger=logger)
        sandbox.get_info()
    said = [record.getMessage() for record in caplog.records if record.name == "cases.create"]
    assert any("POST" in line for line in said)
    assert any("201" in line for line in said)


@pytest.mark.needs("e2b.Sandbox.create(idempotency_key)")
def test_the_same_idempotency_key_does_not_create_a_second_sandbox(create: Create, unique: str) -> None:
    first = create(idempotency_key=unique, metadata={"case": unique})
    second = create(idempotency_key=unique, metadata={"case": unique})
    assert second.sandbox_id == first.sandbox_id
    assert output(second, "echo ready") == "ready"


@pytest.mark.needs("e2b.Sandbox.create(idempotency_key)")
def test_an_idempotency_key_is_for_one_request(create: Create, unique: str) -> None:
    create(idempotency_key=unique, metadata={"case": unique})
    with pytest.raises(SandboxException) as refused:
        create(idempotency_key=unique, metadata={"case": "another"})
    assert refused.value.status_code in (409, 422)


@pytest.mark.parametrize("timeout", [-1, -(2**31)])
def test_a_timeout_below_one_is_refused(api: Surface, timeout: int) -> None:
    with pytest.raises(SandboxException, match="400: Timeout must be greater than 0"):
        api.Sandbox.create(timeout=timeout)


@pytest.mark.needs("ApiParams.retries")
def test_a_timeout_of_zero_is_refused(api: Surface) -> None:
    with pytest.raises(SandboxException, match="400: Timeout must be greater than 0"):
        api.Sandbox.create(timeout=0)


@pytest.mark.parametrize("timeout", [10**12, 2**63 - 1, 10**30])
def test_a_timeout_of_centuries_is_refused(api: Surface, timeout: int) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.create(timeout=timeout)


def test_an_unknown_template_is_named(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxException, match=f"404: template '{unique}' not found"):
        api.Sandbox.create(unique)


def test_an_unknown_tag_is_named(api: Surface) -> None:
    with pytest.raises(SandboxException, match="404: tag 'none' does not exist for template 'base'"):
        api.Sandbox.create("base:none")


@pytest.mark.parametrize("template", ["with space", "a/b/c", "../base", "base:", ":tag", "ü"])
def test_a_name_that_no_template_can_have_is_refused(api: Surface, template: str) -> None:
    with pytest.raises(SandboxException, match="^40[04]: "):
        api.Sandbox.create(template)


@pytest.mark.parametrize("field", ["envs", "metadata"])
def test_a_value_that_is_no_text_is_refused(api: Surface, field: str) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.create(**{field: {"NUMBER": 1}})


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_a_name_that_no_variable_can_have_is_refused(api: Surface, name: str) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        api.Sandbox.create(envs={name: "value"})


def test_a_wrong_key_is_refused(api: Surface) -> None:
    with pytest.raises(AuthenticationException, match="401"):
        api.Sandbox.create(api_key="e2b_" + "0" * 40)


def test_identities_of_workloads_are_refused_by_name(api: Surface) -> None:
    token = api.Secret.iam_token(audience="example", token_type="JWT-SVID")
    with pytest.raises(SandboxException, match="iam"):
        api.Sandbox.create(iam={"tokens": {"cloud": token}})


def test_each_sandbox_boots_by_itself(create: Create, sandbox: Any) -> None:
    assert boot_id(create()) != boot_id(sandbox)
