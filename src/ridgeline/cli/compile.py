"""`ridgeline compile`: what the XLA compiler says of a program."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ridgeline.cli import options
from ridgeline.cli.compile_function import compile_function, names_a_function
from ridgeline.cli.compile_serving import compile_serving
from ridgeline.cli.lint_flags import lint
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.job.origin import Arguments, Setting
    from ridgeline.job.serving import AnyJob
    from ridgeline.study.compile_job import CompileAnswer
    from ridgeline.study.compiled_program import ProgramName

_Form = Literal["screen", "explained", "json"]


def compile(  # noqa: A001 - the verb's name, called as ridgeline.cli.compile.compile
    job: Annotated[
        options.Text,
        typer.Argument(
            metavar="[JOB|MODEL|FUNCTION]",
            help="A job file (.toml), a model's name, its config.json, or a function: module:function.",
        ),
    ] = None,
    *,
    on: Annotated[options.Text, typer.Option(metavar="SLICE", help="v5e:4x4, tpu7x:4x4x4, 2*v5p:4x4x4.")] = None,
    layers: Annotated[
        options.Text, typer.Option(metavar="N", help="So many layers of the model, for a small try.")
    ] = None,
    global_batch: options.GlobalBatch = None,
    seq_len: options.SeqLen = None,
    mesh: Annotated[
        options.Text,
        typer.Option(
            metavar="AXIS=N,...", help="Degrees: fsdp=32,tp=4. With --hlo: names of its axes, outermost first."
        ),
    ] = None,
    remat: options.Remat = None,
    gradient_accumulation: options.GradientAccumulation = None,
    weights_dtype: options.WeightsDtype = None,
    optimizer: options.Optimizer = None,
    mu_dtype: options.MuDtype = None,
    nu_dtype: options.NuDtype = None,
    optimizer_state: options.OptimizerState = None,
    prompt_len: Annotated[options.Text, typer.Option(metavar="N", help="Serving: tokens a prompt.")] = None,
    generate_len: Annotated[options.Text, typer.Option(metavar="N", help="Serving: tokens a reply.")] = None,
    batch: Annotated[
        options.Text, typer.Option(metavar="N", help="Serving: sequences that are decoded at once.")
    ] = None,
    prefill_mesh: Annotated[
        options.Text, typer.Option(metavar="AXIS=N,...", help="Serving: degrees of prefill.")
    ] = None,
    decode_mesh: Annotated[options.Text, typer.Option(metavar="AXIS=N,...", help="Serving: degrees of decode.")] = None,
    prefill_batch: Annotated[
        options.Text, typer.Option(metavar="N", help="Serving: prompts that are read at once.")
    ] = None,
    kv_cache_dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Serving: of the KV cache: bf16, int8 or fp8.")
    ] = None,
    program: Annotated[
        Literal["maxtext", "ours"] | None,
        typer.Option(help="The program that is compiled: MaxText's, the usual one where it is found, or our own."),
    ] = None,
    maxtext_python: Annotated[options.Text, typer.Option(metavar="PATH", help="The Python that has MaxText.")] = None,
    compiler: Annotated[
        Literal["tpu", "gpu", "cpu"] | None,
        typer.Option(help="XLA for the slice's own chips, or for this machine's CPU with emulated devices."),
    ] = None,
    time_limit: Annotated[
        options.Text, typer.Option(metavar="TIME", help="The compiler's longest time: 10min.")
    ] = None,
    memory_limit: Annotated[
        options.Text, typer.Option(metavar="SIZE", help="The compiler's largest memory: 8GiB.")
    ] = None,
    args: Annotated[
        options.Text,
        typer.Option(metavar="SPEC", help="What a function is called with: 'bf16[1024_fsdp,4096], f32[]'."),
    ] = None,
    hlo: Annotated[
        options.Text, typer.Option(metavar="FILE", help="Read an HLO text or dump; nothing is compiled.")
    ] = None,
    lint_flags: Annotated[
        options.Text,
        typer.Option(metavar="FLAGS", help="Judge flags of the TPU compiler, as they stand in LIBTPU_INIT_ARGS."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where the equation's numbers of a training job come from.")
    ] = False,
    json: options.Json = False,
) -> None:
    """What the XLA compiler says of a program: memory, FLOPs, collectives, its estimate of cycles.

    Of a job, it compiles a training step ahead of time for the slice, which need not be there, and shows the
    estimate beside it; what the job leaves open is chosen first. The same question again is answered from a cache.
    Of a serving job (--prompt-len, or a job file) it compiles prefill and a step of decoding.
    Of a function of your own it says the same of that; nothing is estimated of it.
    With --hlo it reads a text that exists already; neither JAX nor an accelerator is needed.
    With --lint-flags it says which flags the installed compiler refuses for a chip (--on v5p), and why.
    """
    if [job, hlo, lint_flags].count(None) != 2:
        raise _one_question(job)
    flags: Arguments = {
        "on": on,
        "global_batch": global_batch,
        "seq_len": seq_len,
        "mesh": mesh,
        "remat": remat,
        "gradient_accumulation": gradient_accumulation,
        "weights_dtype": weights_dtype,
        "optimizer": optimizer,
        "mu_dtype": mu_dtype,
        "nu_dtype": nu_dtype,
        "optimizer_state": optimizer_state,
        "prompt_len": prompt_len,
        "generate_len": generate_len,
        "batch": batch,
        "prefill_mesh": prefill_mesh,
        "decode_mesh": decode_mesh,
        "prefill_batch": prefill_batch,
        "kv_cache_dtype": kv_cache_dtype,
    }
    said = {**flags, "layers": layers, "program": program, "maxtext_python": maxtext_python, "args": args}
    said |= {"compiler": compiler, "time_limit": time_limit, "memory_limit": memory_limit}
    if lint_flags is not None:
        _refuse_all_but(("on", "time_limit", "memory_limit"), said, question="--lint-flags")
        lint(lint_flags, on=on, limits=_limits(time_limit, memory_limit), json=json)
        return
    if hlo is not None:
        _refuse_all_but(("mesh",), said, question="--hlo")
        _read(hlo, mesh, json=json)
        return
    if args is not None or names_a_function(str(job)):
        taken = ("on", "args", "mesh", "compiler", "time_limit", "memory_limit")
        _refuse_all_but(taken, said, question="a function")
        limits = _limits(time_limit, memory_limit)
        compile_function(str(job), args, on=on, mesh=mesh, compiler=compiler, limits=limits, json=json)
        return
    _compile(
        _question(str(job), flags, layers),
        program=program,
        compiler=compiler,
        maxtext_python=maxtext_python,
        limits=_limits(time_limit, memory_limit),
        form="json" if json else "explained" if explain else "screen",
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _refuse_all_but(taken: Sequence[str], said: Mapping[str, object], *, question: str) -> None:
    """Refuses what says nothing to a question.

    Raises:
        InputError: Something else than what the question takes was said.
    """
    for name, value in said.items():
        if value is not None and name not in taken:
            raise InputError(
                f"{question} has no {_flag(name)}",
                where=_flag(name),
                value=value,
                expected=", ".join(map(_flag, taken)),
                fix=f"leave {_flag(name)} out",
            )


def _question(reference: str, flags: Arguments, layers: str | None) -> AnyJob:
    from ridgeline.job.origin import settings
    from ridgeline.job.reading import read_any_job

    said = settings(flags, written=_flag)
    return read_any_job(reference, (*said, *_fewer_layers(reference, layers)))


def _compile(
    job: AnyJob,
    *,
    program: ProgramName | None,
    compiler: CompilerName | None,
    maxtext_python: str | None,
    limits: Limits,
    form: _Form,
) -> None:
    """Compiles a job and prints what came of it; ends with 1 where the program does not fit."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.progress import elapsed_line
    from ridgeline.job.serving import ServingJob
    from ridgeline.report.compiled_job import compiled_job_json, compiled_job_report
    from ridgeline.report.derivations import explained
    from ridgeline.study.compile_job import compile_job

    if isinstance(job, ServingJob):
        program = program or ("maxtext" if maxtext_python is not None else "ours")
        compile_serving(job, program=program, compiler=compiler, limits=limits, json=form == "json")
        return
    with elapsed_line() as progress:
        answer: CompileAnswer = compile_job(
            job,
            program=program,
            compiler=compiler,
            maxtext_python=maxtext_python,
            limits=limits,
            progress=progress,
        )
    if form == "json":
        print_json(compiled_job_json(answer))
    else:
        report = compiled_job_report(answer)
        print_report(explained(report, answer.beside.derivations) if form == "explained" else report)
    if answer.verdict == "does_not_fit":
        raise typer.Exit(1)


def _fewer_layers(reference: str, layers: str | None) -> tuple[Setting, ...]:
    """A model of the zoo with another number of layers."""
    from ridgeline.job.origin import Setting
    from ridgeline.model.zoo import resolve_model
    from ridgeline.units import parse_whole

    if layers is None:
        return ()
    if reference.endswith((".toml", ".json")):
        raise InputError(
            "--layers goes with a model of the zoo",
            where="--layers",
            value=reference,
            expected="a model's name",
            fix="write num_layers into the file",
        )
    count = parse_whole(layers, where="--layers", unit="layers")
    most = resolve_model(reference, where="MODEL").num_layers
    if count > most:
        raise InputError(
            f"{reference} has {most} layers",
            where="--layers",
            value=layers,
            expected=f"1 to {most}",
            fix="ask for fewer, or leave it out for all",
        )
    return (Setting(key="model", value={"base": reference, "num_layers": count}, where="MODEL"),)


def _limits(time_limit: str | None, memory_limit: str | None) -> Limits:
    from ridgeline.compiler.process import MOST_MEMORY_BYTES, MOST_TIME_S, Limits
    from ridgeline.units import parse_bytes, parse_duration

    return Limits(
        time_s=MOST_TIME_S if time_limit is None else parse_duration(time_limit, where="--time-limit"),
        memory_bytes=MOST_MEMORY_BYTES if memory_limit is None else parse_bytes(memory_limit, where="--memory-limit"),
    )


def _read(hlo: str, mesh: str | None, *, json: bool) -> None:
    """Prints what an HLO text says."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.hlo.summary import summarise
    from ridgeline.hlo.text import read_hlo
    from ridgeline.report.compile import compile_json, compile_report

    module = read_hlo(hlo, where="--hlo")
    degrees = None if mesh is None else _degrees(mesh, module.num_devices)
    summary = summarise(module, mesh=degrees)
    if json:
        print_json(compile_json(summary))
    else:
        print_report(compile_report(summary))


def _degrees(mesh: str, num_devices: int) -> dict[str, int]:
    """Devices along each axis, under whatever names the program gave them.

    Raises:
        InputError: They are not the devices of the program.
    """
    from ridgeline.job.mesh import parse_pairs
    from ridgeline.units import parse_whole

    pairs = parse_pairs(mesh, where="--mesh", example="fsdp=32,tp=4")
    degrees = {axis: parse_whole(degree, where=f"--mesh: {axis}", unit="devices") for axis, degree in pairs.items()}
    if prod(degrees.values()) != num_devices:
        raise InputError(
            "mesh does not fill the devices",
            where="--mesh",
            value=f"{mesh}, product {prod(degrees.values())}",
            expected=f"{num_devices}: the text is of {num_devices} devices",
            fix=f"choose degrees whose product is {num_devices}",
        )
    return degrees


def _one_question(job: str | None) -> InputError:
    return InputError(
        "nothing to compile or to read" if job is None else "either a job, an HLO text or flags",
        where="compile",
        value="" if job is None else job,
        expected="JOB, --hlo FILE, or --lint-flags FLAGS",
        fix="ridgeline compile llama3.1-8b --on v5e:4x4 --seq-len 2048, or ridgeline compile --hlo step.hlo",
    )
