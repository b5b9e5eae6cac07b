def price(amount: int) -> int:
    return amount * 120
