"""placeholder"""
import typer
app = typer.Typer()
@app.command()
def sampling() -> None:
    """x"""
